"""A Qdrant server for tests: the REST paths that `ragkv.retrieve.qdrant` uses, over the client's own local mode.

It can be stopped, losing nothing, and started again on the same port.
"""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from qdrant_client import QdrantClient, models

VERSION = "1.19.0"


class QdrantServer:
    """`requests` counts what was asked since it was made. While `failing` is set every request gets that status."""

    def __init__(self) -> None:
        self._client = QdrantClient(location=":memory:")
        self._indexed: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._port = 0
        self.requests = 0
        self.failing: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _handler(self))
        self._server.daemon_threads = True
        self._port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Nothing listens on the port when this returns."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server = None

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """(status, result). Local mode is for one thread at a time."""
        with self._lock:
            self.requests += 1
            if self.failing is not None:
                return self.failing, None
            match [method, *path.strip("/").split("/")]:
                case ["GET", "collections"]:
                    return 200, _plain(self._client.get_collections())
                case ["GET", "collections", name, "exists"]:
                    return 200, {"exists": self._client.collection_exists(name)}
                case [_, "collections", name, *rest] if (method, rest) == ("PUT", []):
                    return self._create(name, body)
                case [_, "collections", name, *rest] if self._client.collection_exists(name):
                    return self._in_collection(method, name, "/".join(rest), body)
        return 404, None

    def _create(self, name: str, body: dict[str, Any]) -> tuple[int, Any]:
        if self._client.collection_exists(name):
            return 409, None
        wanted = models.CreateCollection.model_validate(body)
        made = self._client.create_collection(
            name, vectors_config=wanted.vectors, sparse_vectors_config=wanted.sparse_vectors
        )
        self._indexed[name] = {}
        return 200, made

    def _in_collection(self, method: str, name: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        ways: dict[tuple[str, str], Callable[[], Any]] = {
            ("GET", ""): lambda: _plain(self._client.get_collection(name)) | {"payload_schema": self._indexed[name]},
            ("DELETE", ""): lambda: self._client.delete_collection(name),
            ("PUT", "index"): lambda: self._index(name, models.CreateFieldIndex.model_validate(body)),
            ("PUT", "points"): lambda: self._client.upsert(name, models.PointsList.model_validate(body).points),
            ("POST", "points/delete"): lambda: self._client.delete(name, models.FilterSelector.model_validate(body)),
            ("POST", "points"): lambda: self._retrieve(name, models.PointRequest.model_validate(body)),
            ("POST", "points/scroll"): lambda: self._scroll(name, models.ScrollRequest.model_validate(body)),
            ("POST", "points/query/batch"): lambda: self._query(name, models.QueryRequestBatch.model_validate(body)),
        }
        way = ways.get((method, path))
        return (404, None) if way is None else (200, _plain(way()))

    def _index(self, name: str, wanted: models.CreateFieldIndex) -> Any:
        """Noted alone: local mode has none."""
        schema = _plain(wanted.field_schema)
        self._indexed[name][wanted.field_name] = {"data_type": schema["type"], "params": schema, "points": 0}
        return {"operation_id": 0, "status": "completed"}

    def _retrieve(self, name: str, wanted: models.PointRequest) -> Any:
        return self._client.retrieve(
            name, wanted.ids, with_payload=wanted.with_payload, with_vectors=wanted.with_vector
        )

    def _scroll(self, name: str, wanted: models.ScrollRequest) -> Any:
        records, offset = self._client.scroll(
            name,
            scroll_filter=wanted.filter,
            limit=wanted.limit,
            offset=wanted.offset,
            with_payload=wanted.with_payload,
            with_vectors=wanted.with_vector or False,
        )
        return {"points": records, "next_page_offset": offset}

    def _query(self, name: str, wanted: models.QueryRequestBatch) -> Any:
        return self._client.query_batch_points(name, wanted.searches)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _handler(server: QdrantServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(size)) if size else {}
            path = self.path.split("?")[0]
            if path == "/":
                self._send(200, {"title": "qdrant", "version": VERSION})
                return
            status, result = server.answer(self.command, path, body)
            self._send(status, {"result": result, "status": "ok" if status == 200 else {"error": "no"}, "time": 0.0})

        do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - the names that http.server looks for

        def _send(self, status: int, content: Any) -> None:
            encoded = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(encoded)))
            self.send_header("connection", "close")  # so that stop() leaves no connection that still answers
            self.end_headers()
            self.wfile.write(encoded)
            self.close_connection = True

        def log_message(self, *args: Any) -> None:
            """Tests are quiet."""

    return Handler
