"""Versions of vLLM."""

import re
from pathlib import Path

import pytest

from ragkv.engine.launch import TESTED, check_version, refuse_untested
from ragkv.errors import Rejected

ROOT = Path(__file__).parents[2]


def test_the_installed_one_is_tested():
    check_version()


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0", "0.32.1+cpu", "0.32.0rc1", "0.33.0"])
def test_patches_of_tested_ones_are_served(version: str):
    refuse_untested(version)


@pytest.mark.parametrize("version", ["0.3.2", "0.30.4", "0.34.0", "1.0.0", "dev"])
def test_others_are_refused_with_those_that_are_not(version: str):
    with pytest.raises(Rejected, match=r"0\.32 or 0\.33"):
        refuse_untested(version)


def test_the_docs_have_a_row_for_each():
    text = (ROOT / "docs" / "MODELS.md").read_text()
    assert re.findall(r"^\| (0\.\d+) \|", text, re.MULTILINE) == list(TESTED)
