"""A context of 8k tokens for models of which five layers in six have a window, and for the same with none."""

import random
import statistics
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest
from transformers import Gemma3TextConfig

from ragkv.settings import Settings
from tests.engine.conftest import started
from tests.engine.tiny import TINY, save_tiny

SHAPES = {
    "tiny": TINY | {"num_hidden_layers": 12},
    "1B": TINY
    | {
        "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "num_key_value_heads": 1, "head_dim": 256,
        "max_position_embeddings": 16384, "initializer_range": 0.02,
    },
}  # fmt: skip
CHUNK, CHUNKS, WINDOW, ROUNDS = 512, 16, 1024, 5


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_third_of_the_bytes_is_read(shape: str, language_model: Path, tmp_path: Path) -> None:
    """Nothing recomputed; files in the page cache, which were checked; in turns, medians."""
    num_bytes, first_token_s = {}, {}
    for kind in ("windows", "no windows"):
        fields = SHAPES[shape] | {"sliding_window": WINDOW, "query_pre_attn_scalar": 256}
        layers = fields["num_hidden_layers"]
        local = ["full_attention" if kind == "no windows" or n % 6 == 5 else "sliding_attention" for n in range(layers)]
        config = Gemma3TextConfig(**fields | {"layer_types": local, "max_position_embeddings": 16384})
        settings = Settings(
            data_dir=tmp_path / kind, model=str(save_tiny(config, language_model, tmp_path / kind / "model")), dtype="bfloat16",
            chunk_tokens=CHUNK, max_model_len=CHUNKS * CHUNK + 1024, kv_cache_gib=2.0, host_kv_bytes=0,
        )  # fmt: skip
        world = started(settings, 1)
        core = psutil.Process(world.engine._family.children[0].pid)
        draw = random.Random(0)
        chunks = [
            replace(world.model.chunks[0], token_ids=tuple(draw.choices(range(1000, 9000), k=CHUNK)))
            for _ in range(CHUNKS)
        ]
        world.ingest(chunks)
        prompt = world.model.prompt(chunks)
        whole = world.model.plan(chunks)
        for _ in range(ROUNDS + 1):
            for narrow in (False, True):
                before, began = core.io_counters().read_chars, time.perf_counter()
                world.ask(prompt, msgspec.structs.replace(whole, narrow=narrow), max_tokens=1)
                first_token_s.setdefault((kind, narrow), []).append(time.perf_counter() - began)
                num_bytes[kind, narrow] = core.io_counters().read_chars - before
        world.stop()
        print(f"\n{shape}, {prompt.question.start} tokens, {kind}:")
        for narrow in (False, True):
            seconds = statistics.median(first_token_s[kind, narrow][1:])
            print(f"  narrow {narrow}: {num_bytes[kind, narrow] / 1e6:.1f} MB, first token {seconds * 1e3:.0f} ms")
    assert num_bytes["windows", True] < 0.36 * num_bytes["no windows", False]
    assert num_bytes["no windows", True] > 0.99 * num_bytes["no windows", False]
