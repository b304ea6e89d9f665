"""A requested evaluation of a writer, run in a worker."""

import logging
from collections.abc import Callable

from msgspec.structs import replace

from ingest.progress import Interrupted, StageProgress
from ingest.writer.corpus import chunks_of_collection
from ingest.writer.run import Plan, Run
from ingest.writer.train import Course
from ragkv.catalog.writers import writer_folders
from ragkv.errors import NotFound, RagKVError
from ragkv.parts import Parts
from ragkv.writer import EMBEDDED_WRITER, Gate, read_card, write_card
from ragkv.writer_evaluation import Evaluation, State, read_evaluation, write_evaluation

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
"""An evaluation that kills its worker each time, for want of memory say, is not begun for ever."""


def evaluate_asked(name: str, parts: Parts, progress: StageProgress) -> None:
    """Make the evaluation of the writer of this name, if one is under way. Its file says how far it is and what became
    of it.

    `progress` is told in contexts; interrupted, the evaluation is asked for as before. Holds the model in memory once
    more.
    """
    folder = parts.settings.evaluations_dir
    asked = read_evaluation(name, folder)
    if asked is None or not asked.is_under_way:
        return
    if asked.attempts >= MAX_ATTEMPTS:
        reason = f"the worker ended {MAX_ATTEMPTS} times during the evaluation: see its log"
        write_evaluation(name, replace(asked, state=State.FAILED, error=reason), folder)
        return
    running = replace(asked, state=State.RUNNING, attempts=asked.attempts + 1, done=0)
    write_evaluation(name, running, folder)

    def told(done: int) -> None:
        write_evaluation(name, replace(running, done=done), folder)
        progress("evaluate", done, running.contexts)

    try:
        ended = replace(running, state=State.DONE, done=running.contexts, gate=_gate(name, running, parts, told))
    except Interrupted:
        write_evaluation(name, asked, folder)
        raise
    except RagKVError as error:
        log.warning("the writer %s was not evaluated: %s", name, error)
        ended = replace(running, state=State.FAILED, error=str(error))
    except Exception:
        write_evaluation(name, replace(running, state=State.FAILED, error="see the worker's log"), folder)
        raise
    write_evaluation(name, ended, folder)


def _gate(name: str, asked: Evaluation, parts: Parts, told: Callable[[int], None]) -> Gate:
    """The figures; also on the card of a writer that does not come with ragkv."""
    if (folder := writer_folders(parts).get(name)) is None:
        raise NotFound(f"there is no writer {name} any more")
    card = read_card(folder)
    plan = Plan(folder, Course(card.samples, card.seconds), asked.contexts, card.seed)
    gate = Run(parts, chunks_of_collection(asked.collection, parts), plan).gate(told)
    if folder != EMBEDDED_WRITER:
        write_card(folder, replace(card, gate=gate))
    return gate
