"""The same plans through a real `vllm serve` on a port of this machine."""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from ragkv.engine import launch
from ragkv.engine.launch import serve_command, server_variables
from ragkv.engine.loop import run_in_background
from ragkv.engine.protocol import Sampling
from ragkv.engine.remote import RemoteEngine
from ragkv.errors import Rejected, Unavailable
from ragkv.models import FINGERPRINTS, Fingerprints
from ragkv.span import merge
from ragkv.tokenizer import Tokenizer
from tests.engine.conftest import embedded_settings
from tests.engine.test_recompute import query_vectors
from tests.engine.world import Model, World, request

START_SECONDS = 600
KEY = "the-key-of-this-engine"
WITH_KEY = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def remote(
    language_model: Path, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[World]:
    embedded = embedded_settings(language_model, tmp_path_factory.mktemp("remote"), "bfloat16")
    settings = msgspec.structs.replace(embedded, engine_api_key=KEY)
    model = Model.prepare(settings, 8)
    port = free_port()
    with pytest.MonkeyPatch.context() as on_many_cores:  # vLLM's worker in a process of its own, as on larger machines
        on_many_cores.setattr(launch, "FEW_CORES", 0)
        command = serve_command(settings, Path(settings.model), model.layout, "127.0.0.1", port)
    assert launch.IN_THE_CORE not in command
    log = (settings.data_dir / "vllm.log").open("wb")
    assert KEY not in command, "other users can read command lines"
    environ = os.environ | {"HF_HUB_OFFLINE": "1"} | server_variables(settings)
    server = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
    url = f"http://127.0.0.1:{port}"
    world = World(model, RemoteEngine(url, KEY, settings.max_model_len))
    try:
        wait_until_up(world, server, Path(log.name))
        yield world.start()
        world.stop()
    finally:
        server.terminate()
        server.wait(timeout=60)


def wait_until_up(world: World, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not run_in_background(world.engine.ready()):
        assert server.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(1)


def test_a_remote_engine_stitches_and_reports_like_one_in_this_process(remote: World, served: World) -> None:
    """Same plan, same tokens, same counts."""
    chunks = remote.model.chunks[:6]
    prompt = remote.model.prompt(chunks)
    plan = remote.model.plan(chunks, prompt.chunks[-2:])
    there = remote.ask(prompt, plan, max_tokens=12, logprobs=3)
    here = served.ask(prompt, plan_of(served, chunks, prompt.chunks[-2:]), max_tokens=12, logprobs=3)
    assert there.token_ids == here.token_ids
    assert (there.report.stitched, there.report.recomputed) == (here.report.stitched, here.report.recomputed)
    assert there.report.computed == here.report.computed
    assert there.report.recomputed_spans == here.report.recomputed_spans == merge(prompt.chunks[-2:])
    assert there.report.kv_load_ms > 0
    assert there.report.recompute_ms > 0
    assert there.logprobs[0].keys() == here.logprobs[0].keys()


def plan_of(world: World, chunks: "list[object]", recompute: "tuple[object, ...]") -> "object":
    return world.model.plan(chunks, recompute)


def test_query_vectors_come_back_over_http(remote: World) -> None:
    """The question's vectors ride in the report."""
    query_vectors(remote)


def test_full_prefill_needs_no_plan(remote: World) -> None:
    prompt = remote.model.prompt(remote.model.chunks[:2])
    report = remote.ask(prompt).report
    assert report.computed == len(prompt.token_ids)


def test_an_answer_without_stitching_says_what_was_computed(remote: World) -> None:
    """The engine's KV is of other weights, say: it refuses the plan, and its report is there all the same."""
    prompt = remote.model.prompt(remote.model.chunks[:2])
    plan = msgspec.structs.replace(remote.model.plan(remote.model.chunks[:2]), model="another")
    report = remote.ask(prompt, plan).report
    assert (report.stitched, report.cached + report.computed) == (0, len(prompt.token_ids))


def test_answers_name_the_weights_that_they_are_of(remote: World, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = remote.model.prompt(remote.model.chunks[:2])
    folder = Path(remote.model.settings.model)
    weights = Fingerprints(remote.model.settings.data_dir / FINGERPRINTS).weights(folder)
    monkeypatch.setattr(remote.engine, "_model", lambda: weights)
    assert remote.ask(prompt).token_ids
    monkeypatch.setattr(remote.engine, "_model", lambda: "0" * 64)
    with pytest.raises(Unavailable, match="restart API"):
        remote.ask(prompt)


@pytest.mark.parametrize(
    "params",
    [
        {"ragkv": "nonsense"},
        {"ragkv": {"placed": [["../../etc/passwd", 0, 8]]}},
        {"ragkv": {"placed": [[None, 4, 8]]}},
        {"ragkv": {"placed": [[None, 0, 10**9]]}},
        {"ragkv": {"placed": [[None, 0, 8]], "recompute": [[5, 2]]}},
        {"ragkv": {"placed": [[None, 0, 8]], "selection": ["no such policy", 0.5, 16]}},
        {"ragkv": {"placed": [[None, 0, 8]], "capture": [0, 10**9]}},
        {"ragkv": {"placed": [[None, 0, 5]], "capture": [2**63, 2**63 + 1]}},
        {"ragkv": {"placed": [[None, 0, 8]], "unknown": 1}},
        {"ragkv": {"report_of": "nobody"}},
    ],
)
def test_malformed_plans_never_harm_the_engine(remote: World, params: dict[str, object]) -> None:
    """Whatever a client sends: the prompt is answered, and the next one too."""
    url = str(remote.engine._http.base_url)
    body = {"prompt": list(range(100, 120)), "max_tokens": 2, "kv_transfer_params": params, "temperature": 0}
    answer = httpx.post(f"{url}/v1/completions", json=body, headers=WITH_KEY, timeout=60)
    assert answer.status_code == 200
    body["kv_transfer_params"] = None
    plain = httpx.post(f"{url}/v1/completions", json=body, headers=WITH_KEY, timeout=60)
    assert plain.json()["choices"][0]["text"] == answer.json()["choices"][0]["text"]


@pytest.mark.parametrize("path", ["/v1/completions", "/invocations", "/tokenize", "/metrics", "/openapi.json"])
def test_no_path_of_the_engine_answers_without_its_key(remote: World, path: str) -> None:
    """vLLM itself guards /v1 alone."""
    url = str(remote.engine._http.base_url)
    assert httpx.post(url + path, json={"prompt": "x"}, timeout=60).status_code == 401
    assert httpx.post(url + path, json={"prompt": "x"}, headers=WITH_KEY, timeout=60).status_code != 401
    assert httpx.get(f"{url}/health", timeout=60).status_code == 200


def test_an_engine_that_is_away_is_unavailable(free_port: Callable[[], int]) -> None:
    """With what to do about it."""
    engine = RemoteEngine(f"http://127.0.0.1:{free_port()}", None, 2048)
    with pytest.raises(Unavailable, match="RAGKV_ENGINE_URL"):
        asyncio.run(engine.start())


def test_a_request_the_server_refuses_is_rejected_with_its_reason(remote: World) -> None:
    prompt = remote.model.prompt(remote.model.chunks[:1])
    with pytest.raises(Rejected, match="refused"):
        remote.ask(prompt, sampling=Sampling(temperature=-1.0))


def test_closing_the_stream_early_stops_the_generation(remote: World) -> None:
    """The server takes the next request at once."""

    async def first_piece() -> None:
        stream = remote.engine.generate(request(remote.model.prompt(remote.model.chunks[:1]), max_tokens=4000))
        async for _ in stream:
            break
        await stream.aclose()

    run_in_background(first_piece())
    began = time.monotonic()
    remote.ask(remote.model.prompt(remote.model.chunks[:1]))
    assert time.monotonic() - began < 20


def test_a_server_samples_and_follows_schemas_too(remote: World) -> None:
    chunks = remote.model.chunks[:2]
    prompt, plan = remote.model.prompt(chunks), remote.model.plan(chunks)
    warm = Sampling(temperature=1.5, top_p=0.9, seed=7)
    first, again = (remote.ask(prompt, plan, sampling=warm, max_tokens=16).token_ids for _ in range(2))
    assert first == again != remote.ask(prompt, plan, max_tokens=16).token_ids
    schema = '{"type": "object", "properties": {"born": {"type": "integer"}}, "required": ["born"], "additionalProperties": false}'
    followed = remote.ask(prompt, plan, sampling=Sampling(schema=schema), max_tokens=40, ignore_eos=False).token_ids
    assert json.loads(Tokenizer.load(Path(remote.model.settings.model)).decode(list(followed))).keys() == {"born"}
    with pytest.raises(Rejected, match="refused"):
        remote.ask(prompt, plan, sampling=Sampling(schema='{"type": "nothing"}'))
