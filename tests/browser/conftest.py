"""The dashboard in real Chromium."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.documents.requeue import stuck_ids
from ragkv.service.keys.keys import issue_key
from ragkv.service.parts import Parts
from tests.browser.visit import Visit
from tests.support.over_http import serving

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", metavar="DIR", help="take pictures of every page of the dashboard into DIR")


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """Where there is none the tests are skipped, but in CI, where one is to be there."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        assert not os.environ.get("CI"), "no chromium in CI: `make browser` installs it"
        pytest.skip("no chromium on this machine: `make browser` installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(OPTIONS))
        yield browser
        browser.close()


@pytest.fixture
def service(parts: Parts, redis_server: EmbeddedRedis) -> Iterator[httpx.Client]:
    """The app under uvicorn, with an engine that echoes. Its client needs no key until there is one."""
    with serving(parts) as client:
        yield client


@pytest.fixture
def key(parts: Parts) -> str:
    """An admin's. From now on the service is closed."""
    return issue_key(parts.default_collection.tenant_id, "browser", ["admin"], parts.database).key


@pytest.fixture
def visit(chromium: Browser, service: httpx.Client) -> Iterator[Visit]:
    """A browser's window. Nothing may go wrong in it that the test does not expect."""
    with Visit.beginning(chromium, str(service.base_url)) as visit:
        yield visit


@pytest.fixture
def page(visit: Visit) -> Page:
    return visit.page


@pytest.fixture
def logged_in(visit: Visit, key: str) -> Page:
    """The window of an admin."""
    visit.log_in(key)
    return visit.page


@pytest.fixture
def reader(parts: Parts, ingest: IngestParts) -> Iterator[None]:
    """Reads what is uploaded, in place of a worker."""
    with reading(parts, ingest):
        yield


@contextmanager
def reading(parts: Parts, ingest: IngestParts) -> Iterator[None]:
    stop = threading.Event()

    def read() -> None:
        while not stop.wait(0.1):
            for document_id in stuck_ids(parts.database):
                ingest_document(document_id, ingest)

    thread = threading.Thread(target=read)
    thread.start()
    yield
    stop.set()
    thread.join()
