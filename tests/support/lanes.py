"""Which tests run in which process, where pytest runs several (pytest-xdist)."""

import os
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.conftest import starts_engine

TWO_ENGINES_GIB = 16


class Lanes(LoadScopeScheduling):
    """Tests that start an engine come first, in two lanes: those of the engine itself, and those of the whole service.
    A machine without the memory for two engines at once has one lane for both. The other files are taken whole from a
    queue by whichever process is free, in the order of collection.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._lanes_are_two = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >= TWO_ENGINES_GIB * 2**30

    def _split_scope(self, nodeid: str) -> str:
        if not starts_engine(nodeid):
            return nodeid.split("::", 1)[0]
        return "service" if self._lanes_are_two and not nodeid.startswith("tests/engine/") else "engine"
