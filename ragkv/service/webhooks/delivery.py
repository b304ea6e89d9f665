"""Delivery of due messages: each is signed, and sent until its receiver answers 2xx, with growing delays."""

import asyncio
import base64
import hashlib
import hmac
import logging
import secrets
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx

from ragkv import __version__
from ragkv.errors import Rejected
from ragkv.service.base.database import Database, now_of
from ragkv.service.base.tables import WebhookDeliveryRow, WebhookRow
from ragkv.service.webhooks.address import resolve, target_of
from ragkv.service.webhooks.statements import DELIVERED, FAILED, claim_delivery, due_deliveries, record_attempt

log = logging.getLogger(__name__)

AT_ONCE = 16
OF_TENANT = 4
"""A tenant whose receivers are slow delays those of others by one round."""
ATTEMPT_S = 10.0
"""For a whole attempt: name, connection, and the head of the response. Its body is not read."""
MAX_ERROR_CHARS = 500
CLAIM = timedelta(seconds=60)
DELAYS_S = (5, 300, 1800, 7200, 18000, 36000, 36000)
"""Waits after failed attempts; after the last one more, a day and four hours later, the delivery has failed."""

PREFIX = "whsec_"
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """The outcome of one attempt: the receiver's status code, or the reason why there is none."""

    code: int | None
    error: str | None = None

    @property
    def is_delivered(self) -> bool:
        return self.code is not None and httpx.codes.is_success(self.code)


class Courier:
    """Sends webhooks. `trusted`: hosts that may be reached by plain HTTP and at private addresses."""

    def __init__(
        self, database: Database, trusted: frozenset[str] = frozenset(), *, tls: ssl.SSLContext | None = None
    ) -> None:
        self._database = database
        self._trusted = trusted
        self._tls = tls

    def deliver_due(self, *, silent: bool = False) -> int:
        """Send what is due, several messages at a time. Returns how many were tried. Raises Unavailable.

        silent: to receivers that left a message without a response, in place of the others, which would wait for them.
        """
        with self._database.writing() as session:
            moment = now_of(session)
            longest_wait = timedelta(seconds=max(DELAYS_S))
            due = session.execute(due_deliveries(moment, longest_wait, OF_TENANT, AT_ONCE, silent=silent)).all()
            mine = [
                (delivery, webhook)
                for delivery, webhook in due
                if session.connection().execute(claim_delivery(delivery, moment + CLAIM)).rowcount
            ]
            session.expunge_all()
        if mine:
            asyncio.run(self._deliver(mine))
        return len(mine)

    async def _deliver(self, due: list[tuple[WebhookDeliveryRow, WebhookRow]]) -> None:
        verify = ssl.create_default_context() if self._tls is None else self._tls
        lookups = ThreadPoolExecutor(len(due), "webhook-names")  # one for each: a slow name holds up no other
        try:
            async with httpx.AsyncClient(verify=verify, trust_env=False, timeout=ATTEMPT_S) as client:
                outcomes = await asyncio.gather(*(self._attempt(client, lookups, *message) for message in due))
        finally:
            lookups.shutdown(wait=False)  # nobody waits for an answer that comes after its attempt
        for (delivery, _), outcome in zip(due, outcomes, strict=True):
            failures = delivery.attempts + 1
            with self._database.writing() as session:
                changes: dict[str, Any]
                if outcome.is_delivered:
                    changes = {"status": DELIVERED}
                elif failures > len(DELAYS_S):
                    changes = {"status": FAILED}
                    log.warning("webhook %s: gave up after %d attempts", delivery.webhook_id, failures)
                else:
                    changes = {"next_at": now_of(session) + timedelta(seconds=DELAYS_S[failures - 1])}
                session.execute(record_attempt(delivery.id, code=outcome.code, error=outcome.error, **changes))

    async def _attempt(
        self, client: httpx.AsyncClient, lookups: Executor, delivery: WebhookDeliveryRow, webhook: WebhookRow
    ) -> DeliveryOutcome:
        body = delivery.body.encode()
        try:
            async with asyncio.timeout(ATTEMPT_S):
                target = target_of(webhook.url, self._trusted)
                address = await resolve(target, self._trusted, lookups)
                headers = {
                    "host": target.netloc,
                    "content-type": "application/json",
                    "user-agent": f"ragkv/{__version__}",
                    **signed_headers(webhook.secret, delivery.id, int(time.time()), body),
                }
                url = httpx.URL(scheme=target.scheme, host=address, port=target.port, raw_path=target.path.encode())
                named = {"sni_hostname": target.host}  # the certificate must be the host's, whatever its address
                async with client.stream("POST", url, content=body, headers=headers, extensions=named) as response:
                    return DeliveryOutcome(response.status_code)
        except TimeoutError:
            return DeliveryOutcome(None, f"no response within {ATTEMPT_S:.0f} s")
        except Rejected as error:
            return DeliveryOutcome(None, str(error))
        except Exception as error:  # whatever a receiver or its name does costs its own message alone
            return DeliveryOutcome(None, f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS])


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signed_headers(secret: str, message_id: str, timestamp: int, body: bytes) -> Mapping[str, str]:
    """Headers of one attempt. The signature covers id, time and body: an old message cannot be sent again as a new
    one."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }
