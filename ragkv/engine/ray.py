"""Engines under Ray Serve LLM, as one file that `serve run` accepts.

Ray starts vLLM itself, with the arguments of `ragkv.engine.launch`; it is not imported here. Its *direct streaming* has
vLLM's own application answer in every replica: paths, errors and the key are those of `ragkv engine`, and the router in
front picks the replica.
"""

from pathlib import Path
from typing import Any

import torch

from ragkv.engine.launch import GUARD, engine_arguments, thread_variables, transfer_config
from ragkv.engine.versions import check_version
from ragkv.kv.layout import Layout
from ragkv.settings import Settings

BUILDER = "ray.serve.llm:build_openai_app"
ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
"""Keeps requests of one X-Session-ID together: the header that it reads by default."""
HEALTH_CHECK_PERIOD_S = 1
"""Ray replaces a replica that fails three checks: with its default of 10 s, long after the requests that it refuses are
given up."""
_RAYS_OWN = {"model", "distributed_executor_backend"}
_DIRECT_STREAMING = {"RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING": "1"}


def serve_config(
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
                "import_path": BUILDER,
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
            "request_router_config": {"request_router_class": ROUTER},
            "health_check_period_s": HEALTH_CHECK_PERIOD_S,
            "ray_actor_options": {"num_cpus": 0},  # beside the CPU or GPU a rank
        },
        "runtime_env": {"env_vars": thread_variables(settings)},
        **({} if torch.accelerator.is_available() else {"accelerator_config": {"kind": "cpu"}}),
    }
