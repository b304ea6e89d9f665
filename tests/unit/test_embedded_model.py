"""The embedded language model, as a first start makes it."""

from pathlib import Path

import pytest

from ragkv.models import model_folder
from ragkv.settings import Settings

pytestmark = pytest.mark.long


def test_it_is_made_with_one_line_and_no_bar(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    lines: list[str] = []
    folder = model_folder(Settings(data_dir=tmp_path), lines.append)
    assert (folder / "model.safetensors").is_file()
    assert lines == ["preparing SmolLM2-135M-Instruct (once)"]
    assert capfd.readouterr() == ("", "")
