"""Which tests run in which process, where pytest runs several (pytest-xdist)."""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.conftest import starts_engine

ENGINES = "engines"


class Lanes(LoadScopeScheduling):
    """Tests that start an engine are one lane, the first: two engines at once would need the memory of both. The other
    files are taken whole from a queue by whoever is free, in the order of collection.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return ENGINES if starts_engine(nodeid) else nodeid.split("::", 1)[0]
