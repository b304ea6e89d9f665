"""`ragkv eval plot`: reports of the same questions in one picture."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ragkv.cli import main

MEASURED = Path(__file__).parents[2] / "docs/measured"
RIVALS, ORDER = MEASURED / "fidelity-hotpotqa-rivals.json", MEASURED / "fidelity-hotpotqa-order.json"


def draw(*paths: Path) -> Result:
    return CliRunner().invoke(main, ["eval", "plot", *map(str, paths)], catch_exceptions=False)


def test_reports_of_the_same_questions_are_drawn_as_one_picture(tmp_path: Path):
    alone, together = tmp_path / "alone.png", tmp_path / "together.png"

    assert [draw(RIVALS, alone).exit_code, draw(RIVALS, ORDER, together).exit_code] == [0, 0]
    assert alone.read_bytes().startswith(b"\x89PNG")
    assert together.read_bytes() != alone.read_bytes()


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (MEASURED / "fidelity-2wiki-order.json", "differ in their questions or their model"),
        (Path(__file__), "holds no such report"),
    ],
    ids=["other questions", "no report"],
)
def test_what_cannot_stand_in_one_picture_is_refused(tmp_path: Path, other: Path, reason: str):
    refused = draw(RIVALS, other, tmp_path / "picture.png")

    assert refused.exit_code != 0
    assert reason in refused.output
    assert not (tmp_path / "picture.png").exists()
