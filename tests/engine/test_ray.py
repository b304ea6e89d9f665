"""Engines under Ray Serve LLM: vLLM knows every argument in the configuration, and so does Ray, where installed."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from vllm.engine.arg_utils import AsyncEngineArgs

from ragkv.engine.launch import GUARD, ray_serve_config, serve_command
from ragkv.kv.layout import Layout
from ragkv.settings import Settings

try:
    from vllm.entrypoints.launchers.cli_args import FrontendArgs
except ImportError:  # before 0.31, and from 0.33 on
    try:
        from vllm.entrypoints.openai.cli_args import FrontendArgs
    except ImportError:
        from vllm.entrypoints.common.cli_args import FrontendArgs

KEY = "a-long-random-key"
LAYOUT = Layout(layers=2, q_heads=8, kv_heads=4, head_dim=8, dtype=torch.float32)
FOLDER = Path("model")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model folder without weights, in the working directory."""
    monkeypatch.chdir(tmp_path)
    LlamaConfig().save_pretrained(FOLDER)


def config(**settings: Any) -> dict[str, Any]:
    return ray_serve_config(Settings(**settings), FOLDER, LAYOUT, 3, "127.0.0.1", 8001)


def llm_config(**settings: Any) -> dict[str, Any]:
    return config(**settings)["applications"][0]["args"]["llm_configs"][0]


def test_it_is_what_an_engine_of_its_own_is_told():
    """But for what Ray decides: the model's name, the processes, the address."""
    given = llm_config(speculative_tokens=3)["engine_kwargs"]
    command = serve_command(Settings(speculative_tokens=3), FOLDER, LAYOUT, "127.0.0.1", 8001)
    told = {option[2:].replace("-", "_") for option in command if option.startswith("--") and "--no-" not in option}
    told -= {"host", "port", "model", "served_model_name", "distributed_executor_backend"}
    assert {name for name, value in given.items() if value is not False} == told
    for name in ("kv_transfer_config", "speculative_config"):
        assert given[name] == json.loads(command[command.index("--" + name.replace("_", "-")) + 1])


def test_vllm_knows_every_argument():
    known = {field.name for of in (AsyncEngineArgs, FrontendArgs) for field in dataclasses.fields(of)}
    assert set(llm_config(engine_api_key=KEY)["engine_kwargs"]) - known == set()


def test_the_key_is_asked_for_and_not_told():
    assert llm_config(engine_api_key=KEY)["engine_kwargs"]["middleware"] == [GUARD]
    assert "middleware" not in llm_config()["engine_kwargs"]
    assert KEY not in json.dumps(config(engine_api_key=KEY))


def test_ray_takes_the_configuration():
    """With ray[serve] and pyarrow in the environment, which ragkv does not need itself."""
    pytest.importorskip("ray.serve.llm", reason="Ray is not installed: pip install 'ray[serve]' pyarrow")
    from ray.serve.llm import LLMConfig
    from ray.serve.schema import ServeDeploySchema

    assert ServeDeploySchema.model_validate(config(engine_api_key=KEY)).http_options.port == 8001
    taken = LLMConfig.model_validate(llm_config(engine_api_key=KEY)).get_engine_config()
    assert taken.frontend_kwargs == {"enable_prompt_tokens_details": True, "middleware": [GUARD]}
    assert taken.get_initialization_kwargs()["served_model_name"] == ["ragkv"]
