"""Webhooks, received by a real HTTP server. Addresses that they may not reach; signatures; retries."""

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sqlalchemy import select, update

from ingest.parts import IngestParts
from ingest.pipeline import IngestOutcome, ingest_document
from ragkv.errors import Conflict, Rejected
from ragkv.ids import utc_now
from ragkv.service.base.database import Database
from ragkv.service.base.tables import DocumentRow, WebhookDeliveryRow
from ragkv.service.base.tenants import ensure_collection
from ragkv.service.checks.pruning import prune
from ragkv.service.documents.changes import retry_document
from ragkv.service.parts import Parts
from ragkv.service.webhooks import delivery
from ragkv.service.webhooks.address import Target, resolve, target_of
from ragkv.service.webhooks.delivery import AT_ONCE, DELAYS_S, OF_TENANT, Courier
from ragkv.service.webhooks.statements import READY_EVENT, announce
from ragkv.service.webhooks.webhooks import MAX_WEBHOOKS, make_webhook
from tests.support.over_http import Client, assert_problem, upload
from tests.support.wrong_clock import clock_ahead

HERE = frozenset({"127.0.0.1", "localhost"})


class Receiver:
    """A server that keeps what it gets and answers with the next of `codes`, the last one for ever."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.codes = [204]
        self.silent = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                code = receiver.codes.pop(0) if len(receiver.codes) > 1 else receiver.codes[0]
                if code == 0:
                    receiver.silent.wait(5)
                    return
                self.send_response(code)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()

            def log_message(self, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hook?team=a"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.silent.set()
    receiver.server.shutdown()
    receiver.server.server_close()


def announced(database: Database, url: str, number: int = 1, tenant: str = "default") -> str:
    """A webhook, and a document that is told of so many times. Returns the webhook's secret."""
    ref = ensure_collection(database, tenant)
    secret = make_webhook(ref.tenant_id, url, None, HERE, database).secret
    with database.writing() as session:
        row = DocumentRow(
            tenant_id=ref.tenant_id, collection_id=ref.collection_id, sha256="a" * 64, name="a.md", num_bytes=1
        )
        session.add(row)
        session.flush()
        for _ in range(number):
            announce(session, row.id, READY_EVENT)
    return secret


def certificate_of(name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What a server with a certificate of the name needs, and a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(named)
        .issuer_name(named)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(utc_now() - timedelta(days=1))
        .not_valid_after(utc_now() + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(private + pem)
        file.flush()
        server.load_cert_chain(file.name)
    return server, ssl.create_default_context(cadata=pem.decode())


def due_now(database: Database) -> None:
    with database.writing() as session:
        session.execute(update(WebhookDeliveryRow).values(next_at=utc_now() - timedelta(seconds=1)))


def only(database: Database) -> WebhookDeliveryRow:
    with database.reading() as session:
        (row,) = session.query(WebhookDeliveryRow).all()
        return row


def test_a_receiver_is_told_once_a_document_is_ready(
    client: Client, parts: Parts, ingest: IngestParts, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    tenant_id = parts.default_collection.tenant_id
    issued = make_webhook(tenant_id, receiver.url, None, HERE, parts.database)
    other = client.post("/v1/collections", json={"name": "other"}).json()["id"]
    make_webhook(tenant_id, receiver.url, other, HERE, parts.database)

    document_id = upload(client).json()["id"]
    assert ingest_document(document_id, ingest) is IngestOutcome.READY
    assert Courier(parts.database, HERE).deliver_due() == 1

    ((headers, body),) = receiver.got
    told = json.loads(body)
    assert told["type"] == "document.ready"
    assert (
        told["data"] | {"document_id": document_id, "name": "ada.md", "status": "ready", "error": None} == told["data"]
    )
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(issued.secret.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    (entry,) = client.get(f"/v1/webhooks/{issued.webhook.id}/deliveries").json()["items"]
    assert (entry["id"], entry["status"], entry["code"], entry["attempts"]) == (
        headers["webhook-id"],
        "delivered",
        204,
        1,
    )
    assert Courier(parts.database, HERE).deliver_due() == 0, "nothing is sent twice"


def test_a_receiver_is_told_why_a_document_failed(
    client: Client, parts: Parts, ingest: IngestParts, receiver: Receiver
):
    make_webhook(parts.default_collection.tenant_id, receiver.url, "default", HERE, parts.database)
    document_id = upload(client, b"%PDF-1.7 nothing", "broken.pdf").json()["id"]

    assert ingest_document(document_id, ingest) is IngestOutcome.FAILED
    Courier(parts.database, HERE).deliver_due()
    retry_document(parts.default_collection.tenant_id, document_id, parts.database, parts.queue)
    assert ingest_document(document_id, ingest) is IngestOutcome.FAILED
    Courier(parts.database, HERE).deliver_due()

    events = [json.loads(body) for _, body in receiver.got]
    assert [event["type"] for event in events] == ["document.failed"] * 2
    assert all(event["data"]["error"] for event in events)


def test_a_wait_that_a_clock_which_ran_ahead_began_is_over_once_it_is_right(database: Database, receiver: Receiver):
    announced(database, receiver.url)
    courier = Courier(database, HERE)
    with database.writing() as session:
        session.execute(update(WebhookDeliveryRow).values(next_at=utc_now() + timedelta(days=365)))

    assert courier.deliver_due() == 1


def test_a_message_is_due_at_once_whatever_the_clock_of_its_writer(migrated_postgres_url: str, receiver: Receiver):
    database = Database(migrated_postgres_url)
    with clock_ahead(timedelta(hours=1)):
        announced(database, receiver.url)

    assert Courier(database, HERE).deliver_due() == 1
    database.close()


def test_a_receiver_that_fails_is_tried_again_later(database: Database, receiver: Receiver):
    announced(database, receiver.url)
    receiver.codes = [500, 302, 404, 200]
    courier = Courier(database, HERE)

    for attempt, code in enumerate((500, 302, 404), 1):
        before = utc_now()
        assert courier.deliver_due() == 1
        row = only(database)
        assert (row.status, row.attempts, row.code) == ("pending", attempt, code)
        assert abs((row.next_at - before).total_seconds() - DELAYS_S[attempt - 1]) < 5
        assert courier.deliver_due() == 0
        due_now(database)
    assert courier.deliver_due() == 1

    assert only(database).status == "delivered"
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
    assert len({body for _, body in receiver.got}) == 1


def test_after_the_last_attempt_a_delivery_has_failed_and_a_month_later_it_is_forgotten(
    database: Database, receiver: Receiver
):
    announced(database, receiver.url)
    receiver.server.shutdown()
    receiver.server.server_close()
    courier = Courier(database, HERE)
    for attempt in range(len(DELAYS_S) + 1):
        due_now(database)
        assert courier.deliver_due(silent=attempt > 0) == 1

    row = only(database)
    assert (row.status, row.code, row.attempts) == ("failed", None, len(DELAYS_S) + 1)
    assert "ConnectError" in row.error
    due_now(database)
    assert courier.deliver_due() == courier.deliver_due(silent=True) == 0
    assert prune(0, database).deliveries == 0
    with database.writing() as session:
        session.execute(update(WebhookDeliveryRow).values(created_at=utc_now() - timedelta(days=31)))
    assert prune(0, database).deliveries == 1


def test_a_silent_receiver_costs_a_bounded_time(
    database: Database, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(delivery, "ATTEMPT_S", 0.2)
    announced(database, receiver.url)
    receiver.codes = [0]

    assert Courier(database, HERE).deliver_due() == 1
    assert "no response within" in only(database).error


def test_a_receiver_that_does_not_respond_holds_up_no_other(database: Database, receiver: Receiver):
    announced(database, "https://127.0.0.1:1/")
    courier = Courier(database, HERE)
    courier.deliver_due()
    make_webhook(ensure_collection(database).tenant_id, receiver.url, None, HERE, database)
    due_now(database)
    with database.writing() as session:
        announce(session, session.query(DocumentRow.id).scalar(), READY_EVENT)

    assert (courier.deliver_due(), len(receiver.got)) == (1, 1)
    assert (courier.deliver_due(silent=True), len(receiver.got)) == (2, 1)


def test_a_tenant_has_some_places_in_each_round(database: Database, receiver: Receiver):
    announced(database, receiver.url, OF_TENANT + 2)
    courier = Courier(database, HERE)

    assert [courier.deliver_due() for _ in range(3)] == [OF_TENANT, 2, 0]
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == OF_TENANT + 2


def test_other_tenants_backlogs_cost_a_message_one_round(database: Database, receiver: Receiver):
    for tenant in range(AT_ONCE // OF_TENANT):
        announced(database, "https://127.0.0.1:1/", 2 * AT_ONCE, f"tenant {tenant}")
    announced(database, receiver.url, 1, "late")

    Courier(database, HERE).deliver_due()

    assert len(receiver.got) == 1


def test_a_name_that_cannot_be_looked_up_costs_its_own_message_alone(database: Database, receiver: Receiver):
    announced(database, "https://xn--a.example/")
    ref = ensure_collection(database)
    make_webhook(ref.tenant_id, receiver.url, None, HERE, database)
    with database.writing() as session:
        announce(session, session.query(DocumentRow.id).scalar(), READY_EVENT)

    assert Courier(database, HERE).deliver_due() == 3
    assert len(receiver.got) == 1


def test_names_that_are_slow_to_look_up_cost_others_nothing(
    database: Database, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    """Twelve of three tenants. The round ends without them."""
    answer, answered = threading.Event(), threading.Event()
    look_up = socket.getaddrinfo

    def slow(host: str, *args: Any, **options: Any) -> Any:
        if host == "slow.example":
            answer.wait(20)
            answered.set()
            raise socket.gaierror
        return look_up(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr(delivery, "ATTEMPT_S", 2)
    for tenant in ("a", "b", "c"):
        announced(database, "https://slow.example/", OF_TENANT, tenant)
    announced(database, receiver.url, OF_TENANT, "d")
    try:
        assert Courier(database, HERE).deliver_due() == AT_ONCE
        assert len(receiver.got) == OF_TENANT
        assert not answered.is_set()
    finally:
        answer.set()


def test_a_host_that_is_no_longer_trusted_is_not_reached(database: Database, receiver: Receiver):
    announced(database, receiver.url)

    Courier(database).deliver_due()
    assert receiver.got == []
    assert "https" in only(database).error


def test_other_addresses_are_refused(subtests: pytest.Subtests):
    for url in [
            "http://example.com/hook", "ftp://example.com/", "https://", "https:///x", "example.com/hook", "https://user:pw@example.com/",
            "https://example.com/#part", "https://example.com:99999/", "https://exa mple.com/", "https://ex\u00e4mple.com/",
            "https://127.0.0.1/", "https://10.1.2.3/", "https://192.168.0.1:8443/", "https://169.254.169.254/latest/meta-data",
            "https://[::1]/", "https://[::ffff:10.0.0.1]/", "https://[fd00::1]/", "https://[fe80::1]/", "https://[64:ff9b::a00:1]/",
            "https://[64:ff9b:1::a00:1]/", "https://[fec0::1]/", "https://[::10.0.0.1]/",
            "https://[::ffff:8.8.8.8]/", "https://[::ffff:0:127.0.0.1]/", "https://[::ffff:0:8.8.8.8]/", "https://[64:ff9b::8.8.8.8]/",
            "https://[2606:4700::5efe:10.0.0.1]/", "https://[2606:4700::200:5efe:127.0.0.1]/", "https://[2606:4700::200:5efe:808:808]/",
            "https://[2002:808:808::1]/", "https://[2001:0:808:808::1]/", "https://[::8.8.8.8]/", "https://[5f00::1]/", "https://[ff0e::1]/",
            "https://127.1/", "https://2130706433/", "https://0x7f.1/", "https://0x7f000001/", "https://017700000001/", "https://10.1/",
            "https://localhost/", "https://LOCALHOST:8443/", "https://localhost./", "https://a.localhost/", "https://redis/",
            "https://db.internal/", "https://printer.local/", "https://nas.home.arpa/",
            "https://0.0.0.0/", "https://224.0.0.1/", "https://100.64.0.1/", "https://[::]/", "https://[2002:a00:1::]/",
            "https://example.com/" + "a" * 2000, "https://[1/", "https://example.com/\r\nX: y",
    ]:  # fmt: skip
        with subtests.test(url), pytest.raises(Rejected):
            target_of(url, frozenset())


@pytest.mark.parametrize(
    "url", ["https://[2606:4700:4700::1111]/", "https://8.8.8.8/", "https://a.b.example.com:8443/x?y"]
)
def test_public_addresses_and_names_are_accepted(url: str):
    assert target_of(url, frozenset()).scheme == "https"


@pytest.mark.parametrize("host", ["localhost", "2130706433", "0x7f.1", "127.1"])
def test_a_name_that_leads_to_this_machine_is_refused_when_it_is_looked_up(host: str):
    """Numbers in odd forms, too: whatever the system's resolver makes of them."""
    target = Target("https", host, 443, "/")

    with ThreadPoolExecutor() as lookups, pytest.raises((Rejected, OSError)):
        asyncio.run(resolve(target, frozenset(), lookups))


def test_messages_about_a_document_go_with_it(client: Client, parts: Parts, receiver: Receiver):
    """Its name and its error are in them. What was not sent is not sent any more."""
    ref = parts.default_collection
    webhook = make_webhook(ref.tenant_id, receiver.url, None, HERE, parts.database).webhook
    gone, stays = (str(upload(client, name.encode(), f"{name}.md").json()["id"]) for name in ("gone", "stays"))
    with parts.database.writing() as session:
        for document_id in (gone, gone, stays):
            announce(session, document_id, READY_EVENT)
        session.flush()
        first = session.scalars(select(WebhookDeliveryRow.id).where(WebhookDeliveryRow.document_id == gone)).first()
        session.execute(update(WebhookDeliveryRow).where(WebhookDeliveryRow.id == first).values(status="delivered"))
    assert client.delete(f"/v1/documents/{gone}").status_code == 204

    listed = client.get(f"/v1/webhooks/{webhook.id}/deliveries").json()["items"]
    assert [delivery["document_id"] for delivery in listed] == [stays]
    assert Courier(parts.database, HERE).deliver_due() == 1
    assert [json.loads(body)["data"]["name"] for _, body in receiver.got] == ["stays.md"]


def test_the_api_makes_lists_and_deletes(client: Client, parts: Parts):
    made = client.post("/v1/webhooks", json={"url": "https://example.com/hook", "collection": "default"})
    assert made.status_code == 201
    assert made.json()["secret"].startswith("whsec_")
    webhook = made.json()["webhook"]
    assert client.get("/v1/webhooks").json() == {"items": [webhook], "next": None}
    assert "secret" not in client.get("/v1/webhooks").text
    assert client.get(f"/v1/webhooks/{webhook['id']}/deliveries").json() == {"items": [], "next": None}
    assert client.delete(f"/v1/webhooks/{webhook['id']}").status_code == 204
    assert_problem(client.delete(f"/v1/webhooks/{webhook['id']}"), 404)
    assert_problem(client.post("/v1/webhooks", json={"url": "http://10.0.0.1/"}), 422, "RAGKV_WEBHOOK_HOSTS")
    assert_problem(client.post("/v1/webhooks", json={"url": "https://example.com", "collection": "x"}), 404)


def test_a_tenant_has_a_bounded_number_of_webhooks(database: Database):
    tenant_id = ensure_collection(database).tenant_id
    for _ in range(MAX_WEBHOOKS):
        make_webhook(tenant_id, "https://example.com/", None, frozenset(), database)

    with pytest.raises(Conflict, match="delete one"):
        make_webhook(tenant_id, "https://example.com/", None, frozenset(), database)


@pytest.mark.parametrize(("name", "status"), [("localhost", "delivered"), ("example.com", "pending")])
def test_the_certificate_must_be_the_names(database: Database, receiver: Receiver, name: str, status: str):
    """The connection goes to an address, and what is checked is the name."""
    certificate, trusting = certificate_of(name)
    receiver.server.socket = certificate.wrap_socket(receiver.server.socket, server_side=True)
    announced(database, f"https://localhost:{receiver.server.server_port}/hook")

    Courier(database, frozenset({"localhost"}), tls=trusting).deliver_due()
    assert only(database).status == status
    assert [headers["host"] for headers, _ in receiver.got] == [f"localhost:{receiver.server.server_port}"] * len(
        receiver.got
    )
