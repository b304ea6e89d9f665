"""One question ready to be measured, and the parts used to make its prompts and plans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from bench.known_questions import KnownQuestion
from ragkv.answer.planner import Planner, lay_out
from ragkv.answer.prompt import Prompt, PromptBuilder
from ragkv.answer.recompute import Recompute, Recomputing
from ragkv.answer.service import in_prompt_order
from ragkv.chunk import Chunk, Passage
from ragkv.kv.key import KeyMaker
from ragkv.kv.store import KVStore
from ragkv.settings import Settings
from ragkv.stitch.plan import StitchPlan
from ragkv.stitch.select import block_size_of

ANSWER_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Case:
    """One question ready to be measured.

    in_file_order: its passages as the file has them, scored by retrieval; best_first: the same, ranked. `vectors` are
    the question's initial vectors, [q_layers, q_heads, head_dim], and took `vectors_s` seconds; None if no method needs
    them. `answer_ids` are the tokens of the first accepted answer.
    """

    question: KnownQuestion
    in_file_order: tuple[Passage, ...]
    best_first: tuple[Passage, ...]
    answer_ids: tuple[int, ...]
    vectors: torch.Tensor | None
    vectors_s: float


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prompt, and the plan it is stitched by; None: it is computed in full."""

    prompt: Prompt
    plan: StitchPlan | None


@dataclass(frozen=True, slots=True)
class Kit:
    """The parts that prompts and plans are made with.

    `alone` names the KV of chunks prefilled behind nothing; `variants` that of chunks that a writer wrote, in other
    formats or with tokens left out. num_layers: the model's.
    """

    recomputing: Recomputing
    prompts: PromptBuilder
    planner: Planner
    store: KVStore
    keys: KeyMaker
    alone: KeyMaker
    variants: Mapping[str, KeyMaker] = field(default_factory=dict)
    num_layers: int = 0

    @property
    def settings(self) -> Settings:
        return self.recomputing.settings

    def prompt(self, passages: Sequence[Passage], case: Case) -> Prompt:
        """The prompt of a case. Raises TooLarge if prompt and answer do not fit the model's window."""
        return self._prompt([passage.chunk for passage in passages], case)

    def _prompt(self, chunks: Sequence[Chunk], case: Case) -> Prompt:
        room = max(ANSWER_TOKENS, len(case.answer_ids))
        return self.prompts.build(chunks, case.question.text, room)

    def in_prompt_order(self, case: Case) -> tuple[Passage, ...]:
        """The passages as the service orders them."""
        return in_prompt_order(case.best_first, self.settings.passage_order)

    def planned(self, passages: Sequence[Passage], recompute: Recompute, case: Case) -> Prepared:
        """The prompt and its plan as the service lays them out."""
        located = self.planner.locate(passages, self.keys)
        recompute = recompute.for_kv(written=located.is_written)
        located = lay_out(located, recompute)
        prompt = self._prompt([passage.chunk for passage in located.passages], case)
        return Prepared(prompt, self.planner.plan(prompt, located, recompute, case.vectors))

    def recompute(self, policy: str, ratio: float) -> Recompute:
        block_size = self.settings.block_size or block_size_of(policy)
        return Recompute(policy, ratio, block_size)  # type: ignore[arg-type]
