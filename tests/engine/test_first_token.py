"""The promise of the README: stitched answers begin far sooner."""

from bench.ttft import Bench, TtftReport
from ragkv.engine.loop import run_in_background
from tests.engine.world import World

CONTEXT_TOKENS = 2000


def test_the_first_token_of_a_stitched_prompt_comes_at_least_three_times_sooner(served: World) -> None:
    """Measured: 18 times at this size (docs/BENCHMARKS.md). Medians of runs that take turns with full prefill."""
    model = served.model
    bench = Bench(served.engine, model.prompts, model.planner, model.keys, "question", 4, ratios=(0.0,))

    async def measured() -> TtftReport:
        chunks = [*model.chunks, *model.chunks]
        rows = [row async for row in bench.measure(chunks, [CONTEXT_TOKENS], 3, lambda text: None)]
        return TtftReport("", "", rows)

    report = run_in_background(measured())
    [size] = report.sizes

    assert report.ttft(size, "full") > 3 * report.ttft(size, "stitched", 0.0)
