"""Delivery of webhooks alongside ingestion, in a separate thread: a slow receiver delays no document."""

import threading

from ragkv.service.parts import Parts
from ragkv.service.webhooks.delivery import Courier
from workers.repeating import repeat

INTERVAL_S = 2.0


class Webhooks:
    """A thread that sends what is due. Several workers may do so at once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._stop = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="webhooks", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        courier = Courier(self._parts.database, self._parts.settings.trusted_webhook_hosts)
        repeat(lambda: bool(courier.deliver_due()), self._stop, INTERVAL_S, "webhooks")
