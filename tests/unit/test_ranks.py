"""Two ranks decide together: each sees the same, and one that fails alone ends rather than leaving the other in a
collective."""

import multiprocessing
import os
from pathlib import Path

import pytest
import torch
from torch.distributed import destroy_process_group, init_process_group

from ragkv.connector.ranks import FailedTogether, Ranks

LEFT_ALONE = 1
OTHER_ENDED = 3


def as_rank(rank: int, folder: Path) -> None:
    """The life of one rank. Both run the same steps; what they see goes to a file."""
    init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=2)
    ranks = Ranks(rank, 2)
    seen: dict[str, object] = {
        "all of": ranks.all_of([True, rank == 0, rank == 1, False]),
        "none asked": ranks.all_of([]),
        "sum": ranks.sum(torch.tensor([1.0, 0.1]) * (rank + 1)),
        "mean": ranks.mean(torch.tensor([rank, rank * 3.0])),
        "concatenated": ranks.concatenated(torch.full((2, 1), float(rank)), 1),
    }
    with ranks.together():
        seen["worked"] = True
    for name, fails in (("one", {1}), ("both", {0, 1})):
        try:
            with ranks.together():
                if rank in fails:
                    raise ValueError(f"rank {rank}")
        except FailedTogether as error:
            seen[name] = (str(error), repr(error.__cause__), ranks.is_shared(error))
    seen["own"] = ranks.is_shared(ValueError())
    torch.save(seen, folder / f"{rank}.pt")
    if rank == 1:
        with ranks.never_alone():
            raise ValueError("it did not get as far as the other")
    try:
        ranks.all_of([True])  # the other one has ended: the connection closes
    except RuntimeError:
        os._exit(OTHER_ENDED)  # a thread of gloo's may abort an interpreter that ends while it runs
    destroy_process_group()


def test_two_ranks_see_the_same_and_neither_waits_for_one_that_failed(tmp_path: Path):
    spawned = multiprocessing.get_context("spawn")
    processes = [spawned.Process(target=as_rank, args=(rank, tmp_path)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)

    assert [process.exitcode for process in processes] == [OTHER_ENDED, LEFT_ALONE]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert first["all of"] == second["all of"] == [True, False, False, False]
    assert first["none asked"] == []
    assert torch.equal(first["sum"], second["sum"])
    assert torch.allclose(first["sum"], torch.tensor([3.0, 0.3]))
    assert first["mean"].tolist() == second["mean"].tolist() == [0.5, 1.5]
    assert first["concatenated"].tolist() == second["concatenated"].tolist() == [[0.0, 1.0], [0.0, 1.0]]
    assert (first["one"], second["one"]) == (
        ("on another rank", "None", True), ("on this rank", "ValueError('rank 1')", True)
    )  # fmt: skip
    assert first["both"][1:] == ("ValueError('rank 0')", True)
    assert (first["own"], second["own"]) == (False, False)


def test_a_rank_that_is_alone_asks_no_one():
    alone, own = Ranks(), torch.ones(2)

    assert alone.all_of([True, False]) == [True, False]
    assert alone.sum(own) is own
    assert alone.concatenated(own, 0) is own
    for context in (alone.together(), alone.never_alone()):
        with pytest.raises(ValueError, match="mine"), context:
            raise ValueError("mine")
    assert alone.is_shared(ValueError())
