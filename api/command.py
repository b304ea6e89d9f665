"""`ragkv serve`: the service on one machine: API, worker, engine, and Redis if none is configured."""

import logging
import os
from contextlib import ExitStack, closing

import click
import msgspec

from api.app import create_app
from api.http.draining import Draining
from api.http.server import Server, freeze_objects, listen, raise_descriptor_limit, share_interpreter
from api.worker_process import WorkerProcess
from ragkv.errors import Rejected
from ragkv.observe import logs, traces
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.keys.keys import any_key
from ragkv.service.parts import Parts
from ragkv.settings import Settings

log = logging.getLogger("ragkv")


@click.command()
@click.option("--host", help="Address to listen on.  [default: RAGKV_HOST, 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on.  [default: RAGKV_PORT, 8000]")
@click.option(
    "--worker/--no-worker", default=True, help="Run an ingestion worker too. Workers can also run on other machines."
)
def serve(host: str | None, port: int | None, worker: bool) -> None:
    """Run the service: HTTP API, ingestion worker and engine.

    All data is stored under RAGKV_DATA_DIR. Ctrl-C or SIGTERM shuts it down gracefully: running answers are finished,
    within RAGKV_SHUTDOWN_GRACE_S; a second one ends them at once. Uploaded files are not lost.
    """
    options = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = msgspec.structs.replace(Settings.from_env(os.environ), **options)
    logs.configure(settings.log_format, settings.log_level, "serve")
    with ExitStack() as stack:
        stack.enter_context(traces.exporting(settings.otlp_endpoint, "serve"))
        _serve(settings, worker, stack)


def _serve(settings: Settings, with_worker: bool, stack: ExitStack) -> None:
    """Start everything in order; the stack stops it in reverse."""
    raise_descriptor_limit()
    listener = stack.enter_context(closing(listen(settings.host, settings.port)))
    parts = stack.enter_context(closing(Parts(settings, encoder_apart=True)))
    parts.prepare_database()
    _check_access(parts)
    parts.prepare(log.info)
    parts.check_answering()
    # vLLM and its processes log in our format, unless the environment configures their logs.
    vllm_logging = settings.data_dir / "vllm-logging.json"
    level = os.environ.get("VLLM_LOGGING_LEVEL", settings.log_level)
    logs.write_for_vllm(settings.log_format, settings.log_level, "serve", level, vllm_logging)
    os.environ.setdefault("VLLM_LOGGING_CONFIG_PATH", str(vllm_logging.absolute()))
    if settings.redis_url is None:
        redis = EmbeddedRedis(settings)
        stack.callback(redis.stop)
        redis.start()
        redis.keep_running()
    parts.refresh_outdated()
    children = [WorkerProcess(os.environ)] if with_worker else []
    for worker in children:
        worker.start()
        stack.callback(worker.stop)
    share_interpreter()
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    log.info("listening on http://%s:%d; the engine takes up to a minute to start", shown, port)
    draining = Draining()
    app = create_app(parts, draining, when_built=freeze_objects)
    server = Server(app, draining, settings.shutdown_grace_s, *children, max_connections=settings.max_connections)
    server.run(sockets=[listener])


def _check_access(parts: Parts) -> None:
    """Check that a service within reach of other machines lets people in and keeps others out. Raises Rejected for an
    address that other machines can reach while there is no API key, or without the one to which the sign-in provider
    sends people back."""
    settings, sign_in = parts.settings, parts.sign_in
    if parts.gate.is_open():
        log.info(
            "no API keys: every program on this machine has full access until `ragkv keys create --name first --scope "
            "admin` creates the first key"
        )
    elif sign_in is None and not any_key(parts.database):
        raise Rejected(
            f"{settings.host} can be reached from other machines and there is no API key yet; create one first: "
            "ragkv keys create --name first --scope admin"
        )
    if sign_in is None:
        return
    if settings.public_url is None and not settings.on_loopback:
        raise Rejected(
            f"{settings.host} can be reached from other machines: set RAGKV_PUBLIC_URL to the dashboard's origin, like "
            "https://rag.example.com, to which the sign-in provider sends people back"
        )
    log.info("log in to the dashboard %s", sign_in.summary)
