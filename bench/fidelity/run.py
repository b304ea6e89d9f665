"""Prepare, measure and record every question, one after the other."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bench.fidelity.kit import ANSWER_TOKENS, Case, Kit
from bench.fidelity.measure import Measure, MethodProgress, Record
from bench.fidelity.methods import Method
from bench.known_questions import KnownQuestion
from bench.records import Records
from bench.retrieval import COLLECTION, TENANT, Corpus
from ragkv.answer.planner import QuestionVectors
from ragkv.answer.prompt import PromptBuilder
from ragkv.chunk import Chunk, Passage
from ragkv.errors import Rejected, TooLarge
from ragkv.retrieve.encoder import Encoder, embed_question
from ragkv.retrieve.rerank import Reranker
from ragkv.retrieve.retriever import Retriever
from ragkv.threads import Threads
from ragkv.tokenizer import Tokenizer

Prefill = Callable[[Sequence[Chunk]], None]
"""Makes the KV of chunks, behind the prefix under Kit.keys and, if a method needs it, alone under Kit.alone."""


@dataclass(frozen=True, slots=True)
class TokenizedQuestion:
    """A question with its passages and its first answer as tokens."""

    question: KnownQuestion
    chunks: tuple[Chunk, ...]
    answer_ids: tuple[int, ...]

    @classmethod
    def of(cls, question: KnownQuestion, tokenizer: Tokenizer, prompts: PromptBuilder) -> "TokenizedQuestion":
        return cls(question, question.chunks(tokenizer), prompts.answer_ids(question.answers[0]))


class Ranker:
    """Hybrid retrieval over a corpus of one question's passages, in memory."""

    def __init__(self, encoder: Encoder, hops: int, reranker: Reranker | None = None) -> None:
        self._encoder = encoder
        self._hops = hops
        self._reranker = reranker

    def rank(self, question: str, chunks: Sequence[Chunk]) -> tuple[Passage, ...]:
        """All of the chunks, best first."""
        corpus = Corpus({chunk.id: chunk for chunk in chunks})
        index = corpus.indexed(self._encoder)
        retriever = Retriever(partial(embed_question, self._encoder), index, corpus, reranker=self._reranker)
        passages = retriever.search(TENANT, COLLECTION, question, len(chunks), self._hops)
        assert len(passages) == len(chunks), "a search for as many passages as there are finds them all"
        return tuple(passages)


def padded(question: KnownQuestion, questions: Sequence[KnownQuestion], num_passages: int, seed: int) -> KnownQuestion:
    """The question with passages of the others, drawn with the seed, up to `num_passages` in all.

    Its own passages keep their order; the drawn ones stand anywhere between them. The draw depends on the file, the
    seed and the question's line alone. Raises Rejected if the file has too few other passages.
    """
    own = {passage.text for passage in question.passages}
    candidates = {p.text: p for other in questions for p in other.passages if p.text not in own}
    missing = max(0, num_passages - len(question.passages))
    if missing > len(candidates):
        raise Rejected(
            f"there are only {len(candidates)} passages of other questions, but line {question.line} needs {missing} more: "
            f"give --passages {len(question.passages) + len(candidates)} at most"
        )
    draw = random.Random(f"{seed}:{question.line}")  # noqa: S311 - an experiment's sample, not a secret
    passages = list(question.passages)
    for passage in draw.sample(list(candidates.values()), missing):
        passages.insert(draw.randint(0, len(passages)), passage)
    return replace(question, passages=tuple(passages))


@dataclass(frozen=True, slots=True)
class Run:
    """The parts of a run. `ranker` loads the encoder only when a method that ranks calls it."""

    kit: Kit
    measure: Measure
    methods: Sequence[Method]
    ranker: Ranker
    prefill: Prefill

    def check(self, tokenized: Sequence[TokenizedQuestion]) -> None:
        """Check the lengths of all prompts. Raises TooLarge, naming the line, if a prompt does not fit the model's
        window. Needs no engine."""
        for question in tokenized:
            answer_tokens = max(ANSWER_TOKENS, len(question.answer_ids))
            try:
                self.kit.prompts.build(question.chunks, question.question.text, answer_tokens)
            except TooLarge as error:
                raise TooLarge(
                    f"line {question.question.line} with {len(question.chunks)} passages: {error}. Give fewer --passages, or "
                    "raise RAGKV_MAX_MODEL_LEN if the model allows it"
                ) from None

    async def carry_out(
        self, tokenized: Sequence[TokenizedQuestion], records: Records[Record], progress: MethodProgress
    ) -> None:
        """Measures what has no record yet. `progress` is told each method of each question as it begins."""
        for question in tokenized:
            if question.question.line in records:
                continue
            await asyncio.to_thread(self.prefill, question.chunks)
            ranked = await asyncio.to_thread(self.ranker.rank, question.question.text, question.chunks)
            in_file_order = tuple(sorted(ranked, key=lambda passage: passage.chunk.ordinal))
            vectors, seconds = None, 0.0
            if any(method.needs_question for method in self.methods):
                began = time.perf_counter()
                # Always asked for anew, so that they take what they take.
                asking = QuestionVectors(self.measure.engine, self.kit.prompts, Threads("question", 1))
                vectors = await asking.of(question.question.text, self.kit.keys)
                seconds = time.perf_counter() - began
            case = Case(question.question, in_file_order, ranked, question.answer_ids, vectors, seconds)
            outcomes = await self.measure.measure(case, self.methods, progress)
            records.add(Record(question.question.line, question.question.id, outcomes))
            # KV of thousands of passages would fill a disk, and it is quickly recomputed.
            for keys in (self.kit.keys, self.kit.alone, *self.kit.variants.values()):
                self.kit.store.delete(keys.chunk(chunk.token_ids) for chunk in question.chunks)
