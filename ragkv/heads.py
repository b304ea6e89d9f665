"""The attention heads that rank passages (`RAGKV_RERANKER=qcache`), found on a collection's text and stored in a
file in the data folder."""

from datetime import datetime
from pathlib import Path

import msgspec

from ragkv.errors import Rejected
from ragkv.json_file import read_json, write_json

EMBEDDED_HEADS = Path(__file__).parent / "embedded_heads.json"
"""Heads of the embedded model, which come with ragkv."""


class Heads(msgspec.Struct, frozen=True, kw_only=True):
    """Heads of one model. `heads`: (layer, query head) pairs, the best first.

    The figures are of `questions` questions that the heads were not chosen on, each among `candidates` chunks: mean
    reciprocal rank of the chunk that a question was made from, by these heads, by all heads, and by chance.
    """

    model: str
    model_fingerprint: str
    writer_fingerprint: str
    made_at: datetime
    collection: str
    questions: int
    candidates: int
    seed: int
    heads: tuple[tuple[int, int], ...]
    mrr: float
    all_heads_mrr: float
    chance_mrr: float

    def objections(self) -> list[str]:
        """Reasons against using them; none if they pass."""
        if not self.mrr > max(self.all_heads_mrr, self.chance_mrr):
            return [
                f"their MRR is {self.mrr:.2f}, that of all heads {self.all_heads_mrr:.2f}, chance {self.chance_mrr:.2f}"
            ]
        return []

    def described(self) -> list[tuple[str, str]]:
        """Names and values for people."""
        return [
            ("Heads", ", ".join(f"{layer}.{head}" for layer, head in self.heads)),
            ("Model", self.model + (", with a writer" if self.writer_fingerprint else "")),
            ("Checked", f"{self.made_at:%Y-%m-%d %H:%M}, {self.questions} questions, {self.candidates} chunks each"),
            ("MRR", f"{self.mrr:.2f}; all heads {self.all_heads_mrr:.2f}, chance {self.chance_mrr:.2f}"),
        ]


def read_heads(path: Path) -> Heads | None:
    """The heads in a file, None if there is no file. Raises Rejected for one that cannot be read."""
    return read_json(path, Heads, "delete it, or run `ragkv calibrate-heads` again")


def write_heads(path: Path, heads: Heads) -> None:
    """Put heads into use, from the next start on. Raises Rejected for those with objections."""
    if objections := heads.objections():
        raise Rejected(f"the heads were not put into use: {'; '.join(objections)}; nothing was changed")
    write_json(path, heads)


def heads_for(model_fingerprint: str, path: Path) -> Heads:
    """Heads for a model: those in the file, or those that come with ragkv. Raises Rejected if neither are this
    model's."""
    for found in (read_heads(path), read_heads(EMBEDDED_HEADS)):
        if found and found.model_fingerprint == model_fingerprint:
            return found
    raise Rejected(
        "RAGKV_RERANKER=qcache needs to know which of the model's heads rank passages: start without it, ingest "
        "documents, then run `ragkv calibrate-heads`"
    )
