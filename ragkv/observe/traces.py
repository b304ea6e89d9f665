"""Traces over OTLP, if an endpoint is configured. The only module that imports OpenTelemetry.

Spans never carry text of questions, answers or documents, nor messages of errors, which may quote some.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from opentelemetry import context as contexts
from opentelemetry.trace import NoOpTracer, Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ragkv.errors import Rejected

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


from ragkv.observe import logs

__all__ = ("Attributes", "Span", "SpanKind", "cause", "continued", "exporting", "failed", "headers", "opened", "span")

Attributes = Mapping[str, str | bool | int | float | Sequence[str]]

PATH = "/v1/traces"
EXPORT_EVERY_S = 2.0
TIMEOUT_S = 10.0
END_S = 5.0
"""A stop waits for the receiver no longer."""

_W3C = TraceContextTextMapPropagator()
_tracer: Tracer = NoOpTracer()


@contextmanager
def exporting(endpoint: str | None, process: str) -> Iterator[None]:
    """Within the block spans are sent to the OTLP receiver at this URL; at its end, what is left of them.

    Without an endpoint nothing is sent and spans cost next to nothing. Raises Rejected for what is no http(s) URL.
    """
    global _tracer  # noqa: PLW0603 - one process, one tracer: spans are opened in places that share nothing else
    if endpoint is None:
        yield
        return
    url = urlsplit(endpoint)
    if url.scheme not in ("http", "https") or not url.netloc:
        raise Rejected("RAGKV_OTLP_ENDPOINT must be the http(s) URL of an OTLP receiver: http://127.0.0.1:4318")
    provider = _provider(endpoint if url.path.strip("/") else endpoint.rstrip("/") + PATH, process)
    previous, _tracer = _tracer, provider.get_tracer("ragkv")
    try:
        yield
    finally:
        _tracer = previous
        ending = threading.Thread(target=provider.shutdown, daemon=True)  # has a limit of 30 s of its own
        ending.start()
        ending.join(END_S)


@contextmanager
def span(name: str, attributes: Attributes | None = None, kind: SpanKind = SpanKind.INTERNAL) -> Iterator[Span]:
    """A span of the block. Not for the body of an async generator, which several tasks may drive: use `opened`."""
    with _tracer.start_as_current_span(name, kind=kind, attributes=attributes, **_SILENT) as current:
        try:
            yield current
        except Exception as error:
            failed(current, type(error).__qualname__)
            raise


@contextmanager
def continued(headers: Mapping[str, str], name: str, attributes: Attributes, kind: SpanKind) -> Iterator[Span]:
    """`span`, as a part of the trace that these headers name (W3C traceparent), if they do."""
    is_off = isinstance(_tracer, NoOpTracer)
    token = contexts.attach(contexts.Context() if is_off else _W3C.extract(headers, contexts.Context()))
    try:
        with span(name, attributes, kind) as current:
            yield current
    finally:
        contexts.detach(token)


def opened(name: str, attributes: Attributes, kind: SpanKind = SpanKind.INTERNAL) -> Span:
    """A span under the current one, which does not become current itself. To be ended by the caller."""
    return _tracer.start_span(name, kind=kind, attributes=attributes, **_SILENT)


def failed(current: Span, what: str) -> None:
    """The span ends badly: `what` is the class of the error or a status code."""
    current.set_attribute("error.type", what)
    current.set_status(Status(StatusCode.ERROR))


def headers() -> dict[str, str]:
    """Headers that carry the trace on in a message."""
    carried: dict[str, str] = {}
    _W3C.inject(carried)
    return carried


_SILENT: Any = {"record_exception": False, "set_status_on_exception": False}


def _provider(endpoint: str, process: str) -> "TracerProvider":
    """A provider whose every option is given here, so that the settings alone decide."""
    # Half of OpenTelemetry is needed by those alone who want traces.
    import requests  # noqa: PLC0415 - as below
    from opentelemetry.exporter.otlp.proto.http import Compression  # noqa: PLC0415 - see above
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - see above
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - see above
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider  # noqa: PLC0415 - see above
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - see above
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased  # noqa: PLC0415 - see above

    session = requests.Session()
    session.stream = True  # bodies of responses say nothing, may drip, and may never end
    session.hooks["response"].append(lambda response, **_: response.close())
    exporter = OTLPSpanExporter(endpoint, headers={}, timeout=TIMEOUT_S, compression=Compression.Gzip, session=session)
    service = {"service.name": "ragkv", "service.version": version("ragkv"), "ragkv.process": process}
    provider = TracerProvider(
        sampler=ParentBased(ALWAYS_ON), resource=Resource(service), span_limits=SpanLimits(), shutdown_on_exit=False
    )
    provider.add_span_processor(
        BatchSpanProcessor(
            exporter,
            max_queue_size=2048,
            schedule_delay_millis=EXPORT_EVERY_S * 1e3,
            max_export_batch_size=512,
            export_timeout_millis=TIMEOUT_S * 1e3,
        )
    )
    return provider


CAUSE_HEADER = "ragkv_request_id"


def cause() -> dict[str, str]:
    """The request and the trace that what happens now belongs to, as headers; none outside of any."""
    request_id = logs.request_id()
    return headers() | ({CAUSE_HEADER: request_id} if request_id else {})
