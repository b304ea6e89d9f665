"""vLLM's API server: a key is required on every path.

vLLM's own check leaves paths open that answer prompts (/invocations, /tokenize). `--middleware` puts this one before
all of vLLM's application.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from vllm import envs

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_OPEN = "/health"
_BODY = b'{"error": {"message": "the engine needs its key: set RAGKV_ENGINE_API_KEY", "code": 401}}'


class RequireKey:
    """ASGI middleware: a request to anything but /health needs `Authorization: Bearer` with VLLM_API_KEY."""

    def __init__(self, app: App) -> None:
        assert envs.VLLM_API_KEY, "VLLM_API_KEY is not set: start the engine with `ragkv engine`"
        self._app = app
        self._expected = _digest(b"Bearer " + envs.VLLM_API_KEY.encode())

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        is_open = scope["type"] == "lifespan" or (scope["type"] == "http" and scope["path"] == _OPEN)
        sent = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        if is_open or (len(sent) == 1 and hmac.compare_digest(_digest(sent[0]), self._expected)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": _BODY})


def _digest(value: bytes) -> bytes:
    """Equal lengths: what a comparison takes says nothing about the key's length."""
    return hashlib.sha256(value).digest()
