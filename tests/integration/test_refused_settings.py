"""Settings with which only answers would fail: the service does not start with them."""

from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from api.command import _serve
from ragkv.engine import launch
from ragkv.errors import Rejected, Unsupported
from ragkv.settings import Settings

REFUSED = [
    ({"tensor_parallel_size": 7}, Unsupported, "RAGKV_TENSOR_PARALLEL_SIZE"),
    ({"reranker": "/no/such/folder"}, Rejected, "RAGKV_RERANKER=/no/such/folder: no such folder"),
]


@pytest.mark.parametrize(("changed", "kind", "words"), REFUSED, ids=["engine", "reranker"])
def test_serve_refuses_what_only_answers_need(
    settings: Settings,
    changed: dict[str, Any],
    kind: type[Rejected],
    words: str,
):
    given = msgspec.structs.replace(settings, port=0, **changed)
    with ExitStack() as stack, pytest.raises(kind, match=words):
        _serve(given, False, stack)


def test_serve_refuses_a_vllm_that_was_not_tested(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launch, "TESTED", ("0.1",))
    with ExitStack() as stack, pytest.raises(Rejected, match="was not tested"):
        _serve(msgspec.structs.replace(settings, port=0), False, stack)
