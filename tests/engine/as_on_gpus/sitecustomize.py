"""vLLM's V2 model runner, asynchronous scheduling and FlashAttention, as on every GPU, in each process whose PYTHONPATH
names this folder: Python imports this at its start.

vLLM's CPU platform switches asynchronous scheduling off, for latent attention also prefill in steps and prefix caching,
has an attention of its own, and Triton without a driver; interpreted kernels need none.
"""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from triton.backends import backends

_DRIVER = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True))
backends.update(cpu=_DRIVER, interpreter=_DRIVER)
sys.path.append(str(Path(__file__).parent))


AS_IT_IS = ("async_scheduling", "enable_chunked_prefill", "max_num_batched_tokens", "enable_prefix_caching")


def settle_as_on_gpus(module: ModuleType) -> None:
    """Have vLLM's CPU platform leave scheduling and prefix caching as they are, and choose FlashAttention."""
    platform = module.CpuPlatform
    settle, choose = (getattr(platform, name).__func__ for name in ("check_and_update_config", "get_attn_backend_cls"))

    def check_and_update_config(cls: type, config: Any) -> None:
        parts = config.scheduler_config, config.cache_config
        values = [{name: getattr(part, name) for name in AS_IT_IS if hasattr(part, name)} for part in parts]
        settle(cls, config)
        for part, of_part in zip(parts, values, strict=True):
            for setting, value in of_part.items():
                setattr(part, setting, value)

    def get_attn_backend_cls(cls: type, backend: Any, **asked: Any) -> str:
        if asked["attn_selector_config"].use_mla:
            return choose(cls, backend, **asked)
        return module.AttentionBackendEnum.FLASH_ATTN.get_path()

    platform.check_and_update_config = classmethod(check_and_update_config)
    platform.get_attn_backend_cls = classmethod(get_attn_backend_cls)


def compute_by_pytorch(module: ModuleType) -> None:
    """Give vLLM's FlashAttention its functions, which come with CUDA."""
    import flash_attention

    module.flash_attn_varlen_func = flash_attention.flash_attn_varlen_func
    module.reshape_and_cache_flash = flash_attention.reshape_and_cache_flash
    module.get_scheduler_metadata = module.compile_flash_attn_varlen_func_from_specs = None
    module.flash_attn_supports_sinks = lambda: False
    module.is_flash_attn_varlen_func_available = lambda: True
    module.get_flash_attn_version = lambda *_, **__: 2


PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "vllm.platforms.cpu": settle_as_on_gpus,
    "vllm.v1.attention.backends.fa_utils": compute_by_pytorch,
}


class PatchingFinder:
    """Imports modules with their patches."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in PATCHES:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None and spec.loader is not None, "vLLM is installed"
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            PATCHES[name](module)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, PatchingFinder)  # type: ignore[arg-type]
