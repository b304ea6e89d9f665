"""One training run of a writer, from a collection's chunks to an adapter folder with its card."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import torch
from transformers import PreTrainedModel

from bench.writer.corpus import cut, digest_of, divide, read_record, write_record
from bench.writer.evaluate import evaluate
from bench.writer.reading import Reader, load_model
from bench.writer.samples import SIZES, Sample, Samples
from bench.writer.train import Course, Tokens, Trainer
from bench.writer.trainable import RANK, TrainableAdapter
from ragkv.chunk import Chunk
from ragkv.errors import NotFound, Rejected
from ragkv.ids import utc_now
from ragkv.models import public_name
from ragkv.prefill.writer import MAX_ONE_CHUNK_KL, Card, Gate, read_whole, write_card
from ragkv.service.parts import Parts
from ragkv.tokenizer import Tokenizer

STRENGTHS = (1.0, 0.9, 0.8, 0.7, 0.6)
MARGIN = 0.8
"""Share of the gate's limit for one chunk that may be used up: the gate measures on other contexts."""


def settle(
    trainer: Trainer, adapter: TrainableAdapter, progress: Callable[[float], None] = lambda strength: None
) -> float:
    """Keep a share of what an adapter was trained to change: weights between the plain model's and the trained ones
    (WiSE-FT, Wortsman et al., arXiv 2109.01903, section 3) are often as good on what was trained and better elsewhere.
    A chunk that is asked for alone shows it: its distance from full prefill falls with the square of the strength,
    while that of several chunks hardly changes near 1.

    Give an adapter the greatest strength at which one chunk alone of the validation samples passes the gate with a
    margin, or the least. Returns it. `progress` is called with each before it is tried."""
    for strength in STRENGTHS if trainer.samples else STRENGTHS[:1]:
        progress(strength)
        with adapter.at_strength(strength):
            if trainer.validate(alone=True).kl < MARGIN * MAX_ONE_CHUNK_KL:
                break
    adapter.weaken(strength)
    return strength


VALIDATION = 12
EVERY = 40
"""Contexts between two validations, after each of which the run is saved."""
SAVE_AFTER_S = 300.0
"""How much of a training is lost at most where it is broken off: with a large model 40 contexts take an hour."""
CHUNK_TOKENS = 160
"""Tokens of a chunk that are trained on, at most: more cost more than they teach. It is evaluated as it is ingested."""
STATE = "training.pt"


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned training: its course, the number of contexts held out for evaluation, and the folder of the adapter.
    unanswered: share of the training's questions that the model answers itself. data: what is trained on, in words.
    float32: compute in it, whatever the model's dtype."""

    folder: Path
    course: Course
    held_out: int
    seed: int
    unanswered: float = 0.0
    data: str = ""
    float32: bool = False


class Run:
    """A run that goes on where it was broken off, if its folder says so."""

    def __init__(self, parts: Parts, chunks: Sequence[Chunk], plan: Plan, questions: Sequence[Sample] = ()) -> None:
        """chunks: of many documents, those of one document in a row. questions: questions to train on as well. Raises
        Rejected for too few chunks, and for a folder with another model's writer or with a part of one."""
        torch.manual_seed(plan.seed)
        self.plan = plan
        asked_about = {digest_of(chunk) for sample in questions for chunk in sample.chunks}
        self._division = divide(chunks, read_record(plan.folder) | asked_about)
        shortened = (_shortened(near, parts.tokenizer) for near in self._division.training)
        self._training = [near for near in shortened if near]
        self._seen = [*self._division.training, *(sample.chunks for sample in questions)]
        self._known = [
            replace(sample, chunks=tuple(_shortened(sample.chunks, parts.tokenizer))) for sample in questions
        ]
        model, self._adapter, self._card = _writer_of(parts, plan)
        self._reader = Reader(model, self._adapter, parts.prompts.prefix_ids)
        self._tokens = Tokens(parts.prompts)
        validation = _taken(self._division.validation, VALIDATION, plan.seed + 1)
        self._trainer = Trainer(self._reader, self._adapter, self._tokens, plan.course, validation)

    @property
    def samples(self) -> int:
        """Contexts that it was trained on, as of the last save."""
        return self._card.samples

    def train(
        self,
        progress: Callable[[int, float], None],
        validated: Callable[[int, float], None],
        settling: Callable[[float], None],
    ) -> Card:
        """Train to the end of the plan. `progress` and `validated` are told contexts and KL, `settling` what is
        tried. Raises Rejected for a folder whose training cannot go on so, and for a training that diverges."""
        self._go_on()
        sizes = (1, *SIZES)  # one chunk must stay as it was
        samples = Samples(self._training, self.plan.seed, sizes, questions=self._known, unanswered=self.plan.unanswered)
        samples.skip(self._trainer.samples)
        curve = list(self._card.curve)
        saved_at = self._trainer.seconds

        def after(done: int, kl: float) -> None:
            nonlocal saved_at
            progress(done, kl)
            if done % EVERY == 0:
                self._validate(curve, validated)
            elif self._trainer.seconds - saved_at < SAVE_AFTER_S or done % self.plan.course.batch:
                return
            self._save(curve)
            saved_at = self._trainer.seconds

        if not curve:
            self._validate(curve, validated)
        self._trainer.run(samples, lambda done, losses: after(done, losses.kl))
        if curve[-1][0] != self._trainer.samples:
            self._validate(curve, validated)
            self._save(curve)
        # At the strength that suits it, as `save` rounds it. The state stays that of the training, at full strength.
        strength = settle(self._trainer, self._adapter, settling)
        self._adapter.round()
        self._adapter.save(self.plan.folder)
        self._card = msgspec.structs.replace(self._card, strength=strength, made_at=utc_now(), gate=None)
        write_card(self.plan.folder, self._card)
        return self._card

    def _go_on(self) -> None:
        """Take up the training that the folder holds, if there is one."""
        self.plan.folder.mkdir(parents=True, exist_ok=True)
        state = self.plan.folder / STATE
        if state.is_file():
            self._trainer.resume(torch.load(state, map_location="cpu", weights_only=True))
        elif self._card.samples:
            raise Rejected(
                f"{self.plan.folder} holds a writer without the state of its training ({STATE}), so training cannot be resumed: "
                "choose another folder"
            )

    def _validate(self, curve: list[tuple[int, float]], validated: Callable[[int, float], None]) -> None:
        """Add the KL on the validation contexts to the curve. Raises Rejected for none."""
        kl = self._trainer.validate().kl
        if not math.isfinite(kl):
            raise Rejected(
                f"the training has diverged after {self._trainer.samples} contexts: give a lower --learning-rate, "
                "and another folder"
            )
        curve.append((self._trainer.samples, kl))
        validated(*curve[-1])

    def evaluated(self, card: Card, progress: Callable[[int], None]) -> Card:
        """The card with the figures of held-out contexts, also on the disk."""
        card = msgspec.structs.replace(card, gate=self.gate(progress))
        write_card(self.plan.folder, card)
        return card

    def gate(self, progress: Callable[[int], None]) -> Gate:
        """Figures over held-out contexts. `progress` is told how many are done."""
        held_out = _taken(self._division.evaluation, self.plan.held_out, self.plan.seed + 2)
        return evaluate(self._reader, self._adapter, self._tokens, held_out, progress)

    def _save(self, curve: Sequence[tuple[int, float]]) -> None:
        folder = self.plan.folder
        write_record(folder, self._seen)  # before the weights that have seen them
        self._adapter.save(folder)
        partial = folder / f".{STATE}.partial"
        torch.save(self._trainer.state(), partial)
        partial.rename(folder / STATE)
        data = (self._card.data, self.plan.data)
        self._card = msgspec.structs.replace(
            self._card,
            data=", ".join(dict.fromkeys(name for names in data for name in names.split(", ") if name)),
            samples=self._trainer.samples,
            seconds=self._trainer.seconds,
            curve=tuple(curve),
            made_at=utc_now(),
            strength=1.0,
            gate=None,
        )
        write_card(folder, self._card)


def _writer_of(parts: Parts, plan: Plan) -> tuple[PreTrainedModel, TrainableAdapter, Card]:
    """The model with the writer in the plan's folder, or with a new one. Raises Rejected for a writer of another model
    or seed, and for one without its weights."""
    try:
        card = read_whole(plan.folder)
    except NotFound:
        card = None
    if card is not None and (card.model_fingerprint, card.seed) != (parts.model_fingerprint, plan.seed):
        raise Rejected(f"{plan.folder} holds a writer of another model or seed: choose another folder")
    model = load_model(parts.model_folder, torch.float32 if plan.float32 else parts.layout.dtype)
    if card is not None:
        return model, TrainableAdapter.load(model, plan.folder, trainable=True), card
    new_card = Card(
        model=public_name(parts.settings),
        model_fingerprint=parts.model_fingerprint,
        made_at=utc_now(),
        seed=plan.seed,
        rank=RANK,
        samples=0,
        seconds=0.0,
        curve=(),
    )
    return model, TrainableAdapter.new(model), new_card


def _shortened(chunks: Sequence[Chunk], tokenizer: Tokenizer) -> list[Chunk]:
    """The chunks, cut to CHUNK_TOKENS. Those of which the title takes all are left out."""
    shortened = (cut(chunk, CHUNK_TOKENS, tokenizer) for chunk in chunks)
    return [chunk for chunk in shortened if chunk.text]


def _taken(near: Sequence[Sequence[Chunk]], count: int, seed: int) -> list[Sample]:
    supply = Samples(near, seed)
    return [supply.next() for _ in range(count)]
