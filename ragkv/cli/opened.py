"""The service's parts for one command, closed at its end, the tenant that it names, its note in the audit log, and an
engine for it."""

import logging
import os
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import click
from rich.console import Console

from ragkv.service.audit.log import COMMAND_LINE, Change, record_change
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import DEFAULT_COLLECTION, find_collection_ref
from ragkv.service.parts import Parts
from ragkv.settings import Settings

STARTING = "starting vLLM (about 40 seconds on a CPU)"
COLLECTION = click.option("--collection", default=DEFAULT_COLLECTION, help="Id or name of the collection.")
_QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "TORCH_CPP_LOG_LEVEL": "ERROR", "PYTHONWARNINGS": "ignore"}


@contextmanager
def opened_parts(prepare: Callable[[Parts], object] | None = None) -> Iterator[Parts]:
    """Parts by the environment's settings. prepare: called with them before the block; they are closed if it raises."""
    parts = Parts(Settings.from_env(os.environ))
    try:
        if prepare is not None:
            prepare(parts)
        yield parts
    finally:
        parts.close()


@contextmanager
def opened_tenant(name: str) -> Iterator[tuple[Parts, str]]:
    """`opened_parts` with a prepared database, and the id of the tenant of this name. Raises NotFound."""
    with opened_parts(Parts.prepare_database) as parts:
        yield parts, tenant_id_of(name, parts.database)


def tenant_id_of(name: str, database: Database) -> str:
    """The tenant's id. Raises NotFound."""
    return find_collection_ref(database, name).tenant_id


def note_change(tenant_id: str, action: str, command: str, resources: Sequence[str], database: Database) -> None:
    """Record in the audit log what `ragkv <command>` did to these resources."""
    record_change(Change(tenant_id, None, action, f"ragkv {command}", COMMAND_LINE, resources), database)


def silence_libraries() -> None:
    """Silence the logs of libraries and of vLLM's processes: a command prints its result alone."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    warnings.simplefilter("ignore")
    for name in ("vllm", "transformers", "sentence_transformers", "torch"):
        logging.getLogger(name).setLevel(logging.ERROR)


@asynccontextmanager
async def running_engine(parts: Parts, console: Console) -> AsyncIterator[None]:
    """Prepare the models, start the engine with a message, and stop it at the end."""
    silence_libraries()
    with console.status("preparing the models"):
        parts.prepare()
    try:
        with console.status(STARTING):
            await parts.engine.start()
        yield
    finally:
        await parts.engine.stop()
