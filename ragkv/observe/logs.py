"""Logs: one line per event, as JSON or for a terminal. The only module that imports structlog.

Modules log with `logging.getLogger(__name__)`, as the libraries do; everything comes through here. Lines carry what is
bound when they are written: the id of the request that is being handled, in whichever process.
"""

import json
import logging
import logging.config
import multiprocessing
import re
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

from ragkv.observe import LogFormat, LogLevel

REQUEST_ID = "request_id"
_SANE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,99}")
_TALKATIVE = (
    "alembic",
    "celery",
    "httpcore",
    "httpx",
    "kombu",
    "mcp",
    "sentence_transformers",
    "transformers",
    "urllib3",
    "uvicorn",
)
"""Libraries whose warnings are heard, and the rest only at the level debug."""
_NOISE = ("color_message", "fileinfo", "vllm_process_name")
"""What libraries hang on their records for formatters of their own."""


def configure(form: LogFormat, level: LogLevel, process: str) -> None:
    """Configure every logger of this process, to standard error. `process` names it in every line."""
    logging.config.dictConfig(_configuration(form, level.upper(), process))
    logging.captureWarnings(capture=True)


def write_for_vllm(form: LogFormat, level: LogLevel, process: str, vllm_level: str, file: Path) -> None:
    """Write the configuration to a file that vLLM reads, in this process and in those it starts."""
    file.touch(0o600)
    file.write_text(json.dumps(_configuration(form, level.upper(), process, vllm=vllm_level.upper())))


def formatter(*, as_json: bool, process: str) -> logging.Formatter:
    """Records as lines. Tracebacks come without the values of variables: those may be questions."""
    rendered: list[Processor]
    if as_json:
        json_lines = structlog.processors.JSONRenderer(default=str)
        rendered = [structlog.processors.format_exc_info, structlog.processors.EventRenamer("message"), json_lines]
    else:
        plain = structlog.dev.plain_traceback
        rendered = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_gathered(process, "iso" if as_json else "%H:%M:%S"),
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendered],
    )


@contextmanager
def bound(**values: str) -> Iterator[None]:
    """Every line written within the block, also by the tasks and threads that it starts, carries these values."""
    with structlog.contextvars.bound_contextvars(**values):
        yield


def request_id() -> str | None:
    """The id of the request that is being handled."""
    value = structlog.contextvars.get_contextvars().get(REQUEST_ID)
    return value if isinstance(value, str) else None


def accepted_id(sent_id: str | None) -> str:
    """The id a request came with, if it is fit to be written into logs and headers; otherwise a new one."""
    return sent_id if sent_id is not None and _SANE_ID.fullmatch(sent_id) else uuid.uuid4().hex


def _configuration(form: LogFormat, level: str, process: str, **levels: str) -> dict[str, Any]:
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    line = {"()": "ragkv.observe.logs.formatter", "as_json": as_json, "process": process}
    quieter = level if level in ("DEBUG", "ERROR") else "WARNING"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": line},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {name: {"level": level} for name, level in (dict.fromkeys(_TALKATIVE, quieter) | levels).items()},
    }


def _gathered(process: str, time_format: str) -> list[Processor]:
    """The processors that gather the fields of a line."""

    def name_process(logger: Any, method: str, event: EventDict) -> EventDict:
        own = multiprocessing.parent_process() is None
        event["process"] = process if own else multiprocessing.current_process().name
        return event

    def drop_noise(logger: Any, method: str, event: EventDict) -> EventDict:
        for name in _NOISE:
            event.pop(name, None)
        return event

    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(time_format, utc=time_format == "iso"),
        name_process,
        structlog.stdlib.ExtraAdder(),
        drop_noise,
    ]
