"""Evaluations, run by the process that has the engine while the service runs."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from litestar import Litestar

from api.beside import lifespan_of
from ragkv.errors import RagKVError
from ragkv.evaluation.runner import EvaluationRunner
from ragkv.parts import Parts

log = logging.getLogger(__name__)

IDLE_S = 1.0
"""Between two looks for a run, and after one whose question could not be measured for now."""


def evaluating(parts: Parts) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """A lifespan that carries out runs of evaluations."""
    return lifespan_of(lambda: _keep_evaluating(EvaluationRunner(parts)))


async def _keep_evaluating(runner: EvaluationRunner) -> None:
    measured = False
    while True:
        if not measured:
            await asyncio.sleep(IDLE_S)
        measured = False
        try:
            measured = await runner.step()
        except RagKVError as error:
            log.warning("a question of an evaluation is measured later: %s", error)
        except Exception:
            log.exception("a question of an evaluation is measured later")
