"""A receiver of traces over OTLP/HTTP, for tests: it decodes what comes and keeps the spans."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue


@dataclass(frozen=True)
class SpanSeen:
    """One span as it arrived. Ids in hexadecimal; `parent` is empty at the root."""

    name: str
    kind: int
    trace: str
    id: str
    parent: str
    is_error: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass
class Received:
    """Spans in the order of their ends, and the raw bytes they came in."""

    url: str
    spans: list[SpanSeen] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)

    def named(self, name: str) -> SpanSeen:
        """The only span with this name."""
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def take(self, body: bytes) -> None:
        self.raw.append(body)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _values(group.resource.attributes)
            for scope in group.scope_spans:
                self.spans += [_seen(span, resource) for span in scope.spans]


@contextmanager
def receiving() -> Iterator[Received]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["content-length"]))
            received.take(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Nobody wants to read it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received = Received(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield received
    server.shutdown()
    thread.join()
    server.server_close()


def _seen(span: Any, resource: dict[str, Any]) -> SpanSeen:
    return SpanSeen(
        name=span.name,
        kind=span.kind,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        is_error=span.status.code == span.status.STATUS_CODE_ERROR,
        attributes=_values(span.attributes),
        resource=resource,
    )


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair) for pair in pairs}


def _value(pair: KeyValue) -> Any:
    def plain(value: AnyValue) -> Any:
        kind = value.WhichOneof("value")
        return [plain(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, str(kind))

    return plain(pair.value)
