"""vLLM's V2 model runner and asynchronous scheduling, as on every GPU, in each process whose PYTHONPATH names this
folder: Python imports this at its start.

vLLM's CPU platform switches asynchronous scheduling off, for latent attention also prefill in steps and prefix caching,
and Triton without a driver; interpreted kernels need none.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType, SimpleNamespace
from typing import Any

from triton.backends import backends

_DRIVER = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True))
backends.update(cpu=_DRIVER, interpreter=_DRIVER)


AS_IT_IS = ("async_scheduling", "enable_chunked_prefill", "max_num_batched_tokens", "enable_prefix_caching")


class CpuPlatformFinder:
    """Imports vLLM's CPU platform so that it leaves scheduling and prefix caching as they are."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "vllm.platforms.cpu":
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None and spec.loader is not None, "vLLM is installed"
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            settle = module.CpuPlatform.check_and_update_config.__func__

            def check_and_update_config(cls: type, config: Any) -> None:
                parts = config.scheduler_config, config.cache_config
                values = [{name: getattr(part, name) for name in AS_IT_IS if hasattr(part, name)} for part in parts]
                settle(cls, config)
                for part, of_part in zip(parts, values, strict=True):
                    for setting, value in of_part.items():
                        setattr(part, setting, value)

            module.CpuPlatform.check_and_update_config = classmethod(check_and_update_config)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, CpuPlatformFinder)  # type: ignore[arg-type]
