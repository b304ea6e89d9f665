"""The stitch plan of one prompt: a value, decided before the engine sees the prompt, and sent to it as it is.

The engine trusts no sender: types have bounds that hold where a plan is decoded, and what contradicts itself raises
ValueError wherever it is made.
"""

import hashlib
from collections.abc import Collection, Sequence
from typing import Annotated

import msgspec

from ragkv.span import Span, merge
from ragkv.stitch.policies import BLOCK_SIZES, DEFAULT_CHOICE, Choice

MAX_NAME_CHARS = 64
Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARS)]
"""A KV key, a tag or a digest: 64 hex digits at most."""


class PlacedChunk(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The KV file of one chunk (or of the prefix) and the positions its KV takes. No key: there is no file. kept: names
    which of the chunk's tokens stand there, where some are left out (`ragkv.kv.file.name_of_kept`)."""

    key: Name | None
    span: Span
    kept: Name = ""


class EngineSelection(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A selection only the engine can make, because it needs the model's keys over the whole prompt.

    ratio: share of the tokens of all chunks. `topic` names what else the selection depends on: the question, for a
    policy that looks at it; `choice`: the layers, for one that looks at attention.
    """

    policy: Name
    ratio: Annotated[float, msgspec.Meta(ge=0, le=1)]
    block_size: Annotated[int, msgspec.Meta(ge=BLOCK_SIZES[0], le=BLOCK_SIZES[-1])]
    topic: Name = ""
    choice: Choice = DEFAULT_CHOICE


class StitchPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Prompt layout: [0, p) the prefix, then the chunks in order, up to `end`; what follows is always computed.

    `placed` tiles [0, end) without gaps. Positions in `recompute` run through the model again, in place; a chunk whose
    whole span is recomputed needs no KV file at all. `missing` are the spans that are recomputed because their KV is
    missing. `writer`: names who wrote the chunks' KV, empty for the plain model; `quantised`: names the formats of
    what is quantised. `model`: the fingerprint of the model that all KV is of, empty if it is not known. `narrow`: in
    layers with a sliding window only what is seen gets KV.
    """

    placed: Annotated[tuple[PlacedChunk, ...], msgspec.Meta(min_length=1)]
    recompute: tuple[Span, ...] = ()
    selection: EngineSelection | None = None
    missing: frozenset[Span] = frozenset()
    writer: Name = ""
    quantised: Name = ""
    model: Name = ""
    narrow: bool = False

    def __post_init__(self) -> None:
        position = 0
        for chunk in self.placed:
            if chunk.span.start != position:
                raise ValueError(f"the placed chunks leave a gap before {chunk.span}")
            position = chunk.span.end
        if any(span.end > position for span in self.recompute):
            raise ValueError("the tokens to recompute lie beyond the placed chunks")
        if self.selection and self.narrow:
            raise ValueError("a plan that selects is not narrow")

    @property
    def end(self) -> int:
        return self.placed[-1].span.end if self.placed else 0

    @property
    def num_missing(self) -> int:
        """Chunks whose KV is missing, and the prefix, if its is."""
        return len(self.missing)

    def num_without_kv(self, failed_keys: Collection[str]) -> int:
        """Chunks without usable KV: it is missing, or the engine could not use it. The prefix is no chunk."""
        return sum(chunk.span in self.missing or chunk.key in failed_keys for chunk in self.placed[1:])

    @property
    def exact_end(self) -> int:
        """End of the stored KV that full prefill would give as well: behind the prefix and, if the plain model wrote it
        and no token of it is left out, the first chunk, which stands where it was prefilled; to within quantisation,
        which a recompute is not spent on."""
        chunk = self.placed[min(1, len(self.placed) - 1)]
        return self.placed[0].span.end if self.writer or chunk.kept else chunk.span.end

    @property
    def cache_variant(self) -> str:
        """Names how the KV under this plan comes about, for the cache salt.

        KV at a position depends on the ids before it, which vLLM's block hashes cover, and on what is recomputed before
        it, on writer and format, and on the tokens that are left out, which KV has looked at all the same: this covers
        them, and names every chunk where a selection in the engine looks at all of them, or where what is seen, and has
        KV, depends on the end.
        """
        spans = ",".join(f"{span.start}-{span.end}" for span in self.recompute)
        whole = f"{self.selection}{[(chunk.key, chunk.span) for chunk in self.placed]}"
        selection = whole if self.selection or self.narrow else ""
        shortened = "".join(f"|{chunk.span.start} {chunk.key} {chunk.kept}" for chunk in self.placed if chunk.kept)
        named = f"{spans}|{selection}{self.writer}{self.quantised}{shortened}"
        return "stitched:" + hashlib.sha256(named.encode()).hexdigest()


EXACT = "exact"  # the cache variant of a prompt computed in full


def plan_stitch(
    placed: Sequence[PlacedChunk],
    missing: frozenset[str | None],
    selected: Sequence[Span],
    selection: EngineSelection | None = None,
    writer: str = "",
    quantised: str = "",
    model: str = "",
    *,
    has_window: bool = False,
) -> StitchPlan:
    """Place every chunk; recompute what was selected and, whole, every chunk whose KV is missing. has_window: layers of
    the model have a sliding window. A selection in the engine may look anywhere, so it is not narrow then."""
    lost = frozenset(chunk.span for chunk in placed if chunk.key is None or chunk.key in missing)
    return StitchPlan(
        tuple(placed),
        merge([*selected, *lost]),
        selection,
        lost,
        writer,
        quantised,
        model,
        has_window and not selection,
    )
