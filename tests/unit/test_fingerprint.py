"""Fingerprints of model folders: another one whenever the bytes are others, read once."""

import os
import time
from pathlib import Path

import msgspec
import pytest

from ragkv.errors import Rejected
from ragkv.models import Fingerprints

FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md")
LONG_AGO = time.time() - 3600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in FILES:
        (folder / name).write_text(f"content of {name}")
    return folder


def all_of(folder: Path) -> tuple[str, str, str]:
    made = Fingerprints()
    return made.weights(folder), made.tokenizer(folder), made.encoder(folder)


@pytest.mark.parametrize(
    ("name", "weights", "tokenizer"),
    [
        ("model.safetensors", True, False),
        ("model-00002-of-00002.safetensors", True, False),
        ("config.json", True, False),
        ("tokenizer.json", False, True),
        ("tokenizer_config.json", False, True),
        ("special_tokens_map.json", False, True),
        ("vocab.txt", False, True),
        ("merges.txt", False, True),
        ("spiece.model", False, True),
        ("chat_template.jinja", False, True),
    ],
)
def test_another_file_is_another_fingerprint(folder: Path, name: str, weights: bool, tokenizer: bool) -> None:
    before = all_of(folder)
    (folder / name).write_text("other bytes")
    after = all_of(folder)
    assert (before[0] != after[0], before[1] != after[1]) == (weights, tokenizer)
    assert before[2] != after[2], "an encoder depends on both"


def test_what_nothing_depends_on_changes_nothing(folder: Path) -> None:
    before = all_of(folder)
    (folder / "README.md").write_text("other words")
    (folder / "pytorch_model.bin").write_text("weights that nobody loads where there are safetensors")
    assert all_of(folder) == before


@pytest.mark.parametrize("name", ["pytorch_model.bin", "weights.pt", "model.gguf"])
def test_weights_of_other_forms_count_where_there_are_no_safetensors(folder: Path, name: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / name).write_text("one model")
    before = Fingerprints().weights(folder)
    (folder / name).write_text("two model")
    assert Fingerprints().weights(folder) != before


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(Rejected, match="no weights"):
        Fingerprints().weights(folder)


def test_names_of_files_are_part_of_it(folder: Path) -> None:
    before = Fingerprints().weights(folder)
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    assert Fingerprints().weights(folder) != before


def test_an_encoders_modules_are_part_of_it(folder: Path) -> None:
    before = Fingerprints().encoder(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    assert Fingerprints().encoder(folder) != before


class TestKept:
    @pytest.fixture
    def settled(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A folder nothing of which has changed lately."""
        monkeypatch.setattr("ragkv.models._SETTLED_NS", 0)
        return folder

    @pytest.fixture
    def kept(self, tmp_path: Path) -> Path:
        return tmp_path / "kept.json"

    def test_a_second_start_reads_no_file_again(self, settled: Path, kept: Path) -> None:
        Fingerprints(kept).weights(settled)
        known = msgspec.json.decode(kept.read_bytes())
        name = str(settled / "model.safetensors")
        kept.write_bytes(msgspec.json.encode(known | {name: [known[name][0], "as it was kept"]}))
        assert Fingerprints(kept).weights(settled) != Fingerprints().weights(settled)

    def test_a_file_that_is_changed_in_place_is_read_again_though_size_and_time_are_set_back(
        self, settled: Path, kept: Path
    ) -> None:
        path = settled / "model.safetensors"
        os.utime(path, (LONG_AGO, LONG_AGO))
        before = Fingerprints(kept).weights(settled)
        with path.open("r+b") as file:
            file.write(b"X")
        os.utime(path, (LONG_AGO, LONG_AGO))
        assert Fingerprints(kept).weights(settled) == Fingerprints().weights(settled) != before

    def test_what_has_just_changed_is_not_kept(self, folder: Path, kept: Path) -> None:
        Fingerprints(kept).weights(folder)
        assert not kept.exists()

    @pytest.mark.parametrize("content", [b"", b"nonsense", b"[]", b'{"a": 1}'])
    def test_a_file_that_cannot_be_read_is_done_without(self, settled: Path, kept: Path, content: bytes) -> None:
        kept.write_bytes(content)
        assert Fingerprints(kept).weights(settled) == Fingerprints().weights(settled)

    def test_a_place_that_cannot_be_written_is_done_without(self, settled: Path, tmp_path: Path) -> None:
        assert Fingerprints(tmp_path / "no" / "such" / "kept.json").weights(settled)
