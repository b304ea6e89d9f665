"""`ragkv demo` before anything takes long."""

import pytest
from click.testing import CliRunner

from ragkv.cli import main


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        (None, "questions.jsonl: No such file"),
        ('{"question": "Who?"}\n\n{"asked": "Who?"}\n', "questions.jsonl, line 3:"),
    ],
)
def test_questions_that_are_none_are_refused_before_a_document_is_read(questions, message, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGKV_DATA_DIR", str(tmp_path / "data"))
    if questions is not None:
        (tmp_path / "questions.jsonl").write_text(questions)

    result = CliRunner().invoke(main, ["demo", str(tmp_path)])

    assert result.exit_code == 1 and message in result.stderr
    assert not (tmp_path / "data").exists()
