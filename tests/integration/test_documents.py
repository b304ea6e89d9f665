"""Documents and collections over HTTP: lists, metadata, changes, and what hostile clients send."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from litestar.response import File
from sqlalchemy import update

from api.admin.collections import chosen_collection, collections_of
from api.http.files import attachment
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.file_types import READ, READ_KINDS
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.status import Status
from ragkv.service.base.tables import DocumentRow
from ragkv.service.base.tenants import find_collection_ref
from ragkv.service.documents.documents import delete_document
from ragkv.service.documents.metadata import MAX_DEPTH
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.support.echo_engine import EchoEngine
from tests.support.over_http import ADA, Client, assert_problem, events_of, serving, upload

BABBAGE = b"# Charles Babbage\n\nCharles Babbage designed the difference engine in London.\n"


@pytest.fixture(params=["migrated_sqlite_url", "migrated_postgres_url"], ids=["sqlite_url", "postgres_url"])
def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """On each kind of database."""
    url = request.getfixturevalue(request.param)
    return msgspec.structs.replace(settings, max_upload_bytes=100_000, database_url=url)


def put(client: httpx.Client, document_id: str, body: bytes, name: str = "new.md") -> httpx.Response:
    return client.put(f"/v1/documents/{document_id}", files={"file": (name, body)})


def names(client: httpx.Client, **params: Any) -> list[str]:
    response = client.get("/v1/documents", params=params)
    assert response.status_code == 200, response.text
    return [document["name"] for document in response.json()["items"]]


def nested(depth: int) -> str:
    """Metadata with a value of this depth."""
    return '{"a": ' + "[" * depth + "]" * depth + "}"


def fail(parts: Parts, document_id: str) -> None:
    with parts.database.writing() as session:
        session.execute(update(DocumentRow).values(status=Status.FAILED, error="it broke"))


@pytest.fixture
def three(client: Client) -> list[str]:
    """Three documents with metadata, oldest first."""
    metadata = [
        '{"year": 2023, "tags": ["a", "b"]}',
        '{"year": 2024.0, "lang": "en"}',
        '{"year": "2024", "open": true}',
    ]
    forms = zip(("one.md", "two%.md", "Three.txt"), metadata, strict=True)
    return [upload(client, name.encode(), name, data={"metadata": given}).json()["id"] for name, given in forms]


class TestLists:
    def test_filters_narrow_a_list_that_is_newest_first(self, client: Client, three: list[str]):
        assert names(client) == ["Three.txt", "two%.md", "one.md"]
        assert names(client, name="T") == ["Three.txt", "two%.md"]
        assert names(client, name="%") == ["two%.md"]
        assert names(client, status="accepted", name="one") == ["one.md"]
        assert names(client, status="ready") == []
        assert names(client, collection="default") == names(client)

    def test_a_part_of_a_name_is_found_in_any_case(self, client: Client):
        name = "ÄRGER ΟΔΟΣ.txt"
        upload(client, b"one", name)
        for part in ("ärger", "ÄRG", "ΟΔΟΣ", "οδο", "TXT"):
            assert names(client, name=part) == [name]
        assert names(client, name="arger") == []

    def test_a_part_that_is_longer_than_any_name_is_refused(self, client: Client, subtests: pytest.Subtests):
        """SQLite compares with no pattern of more than 50,000 bytes; folded for any case, \u0390 has three times as
        many."""
        for character in ["a", "_", "\u0390"]:
            with subtests.test(character=character):
                upload(client, b"one", "one.txt")
                assert names(client, name=character * 500) == []
                for path in ("/v1/documents", "/admin/collections/default"):
                    assert_problem(client.get(path, params={"name": character * 10_000}), 400)

    def test_metadata_filters_find_equal_values_of_the_same_type(self, client: Client, three: list[str]):
        for filters, found in [
            ('{"year": 2024}', ["two%.md"]),
            ('{"year": "2024"}', ["Three.txt"]),
            ('{"year": [2023, 2024]}', ["two%.md", "one.md"]),
            ('{"year": 2024, "lang": "en"}', ["two%.md"]),
            ('{"year": 2024, "lang": "fr"}', []),
            ('{"tags": "b"}', ["one.md"]),
            ('{"open": true}', ["Three.txt"]),
            ('{"open": 1}', []),
            ('{"year": []}', []),
            ('{"\\u0000\'\\"; DROP TABLE documents": "\\u0000"}', []),
            ("{}", ["Three.txt", "two%.md", "one.md"]),
        ]:
            assert names(client, metadata=filters) == found

    def test_metadata_filters_find_values_of_any_length(self, client: Client):
        for name, value in (
            ("plain.md", "u" * 512),
            ("other.md", "u" * 511 + "v"),
            ("marks.md", "\n" * 5_000),
            ("great.md", 1e300),
        ):
            upload(client, name.encode(), name, data={"metadata": json.dumps({"key": ["a", value]})})
            assert names(client, metadata=json.dumps({"key": value})) == [name]
            assert names(client, metadata=json.dumps({"key": ["b", value]})) == [name]

    def test_pages_follow_each_other_without_gaps(self, client: Client, three: list[str]):
        first = client.get("/v1/documents", params={"limit": 2}).json()
        second = client.get("/v1/documents", params={"limit": 2, "cursor": first["next"]}).json()

        assert [item["id"] for item in first["items"] + second["items"]] == three[::-1]
        assert second["next"] is None

    def test_what_cannot_be_read_is_refused(self, client: Client):
        for params in [
            {"cursor": "x"},
            {"cursor": "\x00"},
            {"cursor": "WyJhIiwiYiJd"},
            {"metadata": "[]"},
            {"metadata": "{"},
            {"metadata": '{"a": {"b": 1}}'},
            {"metadata": "\ud800".encode("utf-8", "surrogatepass")},
        ]:
            assert_problem(client.get("/v1/documents", params=params), 422)

    def test_values_out_of_range_are_refused(self, client: Client):
        for params in [{"limit": 0}, {"limit": 10**30}, {"status": "gone"}, {"limit": "x"}]:
            assert_problem(client.get("/v1/documents", params=params), 400)

    def test_chunks_come_with_their_kv(self, client: Client, answerable: str, parts: Parts):
        shown = client.get(f"/v1/documents/{answerable}/chunks").json()["items"]
        assert "first program" in shown[0]["text"]
        assert (shown[0]["kv"]["state"], shown[0]["kv"]["bytes"] > 0) == ("stored", True)
        parts.kv_store.delete(list(parts.kv_store.keys()))

        assert client.get(f"/v1/documents/{answerable}/chunks").json()["items"][0]["kv"]["state"] == "missing"
        assert client.get(f"/v1/documents/{answerable}/chunks", params={"cursor": "MA"}).json()["items"] == []


class TestUploads:
    def test_the_dashboards_dialog_offers_every_kind_that_is_read(self, client: Client):
        page = client.get("/admin/collections/default").text

        assert all(f"{suffix}," in page for suffix in READ)
        assert READ_KINDS in page
        assert READ_KINDS in client.get("/admin").text

    def test_many_files_are_accepted_or_refused_one_by_one(self, client: Client, settings: Settings):
        bodies = [("a.md", ADA), ("b.md", b""), ("c.md", ADA), ("d.md", b"x" * (settings.max_upload_bytes + 1))]
        files = [("files", file) for file in bodies]
        answer = client.post("/v1/documents/batch", files=files, data={"metadata": '{"set": 1}'}).json()

        assert [(item["name"], item["status"]) for item in answer] == [
            ("a.md", 202),
            ("b.md", 422),
            ("c.md", 200),
            ("d.md", 413),
        ]
        assert answer[0]["document"]["metadata"] == {"set": 1}
        assert "empty" in answer[1]["problem"]["detail"]

    def test_a_misspelt_field_is_refused_and_nothing_is_uploaded(self, client: Client, answerable: str):
        misspelt, before = {"colection": "papers"}, names(client)
        for answer in (
            upload(client, b"x", data=misspelt),
            client.post("/v1/documents/batch", files={"files": ("a.md", b"x")}, data=misspelt),
            client.put(f"/v1/documents/{answerable}", files={"file": ("a.md", b"x")}, data={"metadata": "{}"}),
        ):
            assert_problem(answer, 400)
            assert "unknown field" in answer.json()["errors"][0]["message"]
        assert names(client) == before

    def test_a_name_is_a_name_and_no_path(self, client: Client, parts: Parts, subtests: pytest.Subtests):
        names = {
            "../../etc/passwd": "passwd", "C:\\evil.md": "evil.md", "r\u00e9sum\u00e9 \u6f22\u5b57 \U0001f600.md": None,
            "..": "..", "a\u202eb.md": "ab.md", "x" * 999: "x" * 500,
        }  # fmt: skip
        for name, shown in names.items():
            with subtests.test(name):
                document = upload(client, ADA + name.encode(), name).json()
                download = client.get(f"/v1/documents/{document['id']}/file")

                assert document["name"] == (shown or name)
                assert download.content == ADA + name.encode()
                assert download.headers["content-disposition"].startswith("attachment")
                assert download.headers["x-content-type-options"] == "nosniff"
        kept = [path.name for path in parts.settings.files_dir.rglob("*") if path.is_file()]
        assert [name.isalnum() and len(name) for name in kept] == [64] * len(names)

    def test_a_file_is_sent_whole_though_it_is_deleted_meanwhile(
        self, client: Client, parts: Parts, monkeypatch: pytest.MonkeyPatch
    ):
        document_id = upload(client).json()["id"]

        def deleted_meanwhile(*args: Any) -> File:
            response = attachment(*args)
            delete_document(parts.default_collection.tenant_id, document_id, parts.removal)
            return response

        monkeypatch.setattr("api.v1.documents.attachment", deleted_meanwhile)
        path = f"/v1/documents/{document_id}/file"
        assert client.get(path).content == ADA
        assert client.get(path).status_code == 404

    def test_bad_metadata_is_refused(self, client: Client):
        bad = ["[]", "1", "{", '{"": 1}', '{"a\\u0000": 1}', '{"a": "' + "x" * 20_000 + '"}', "\x00"]
        for metadata in [*bad, nested(MAX_DEPTH), nested(5_000), '{"a": ' + "[" * 20_000]:
            assert_problem(upload(client, data={"metadata": metadata}), 422, "metadata")
            assert names(client) == []

    def test_odd_metadata_is_kept_as_it_came(self, client: Client):
        odd = '{"a\'b": "\\u0000\\ud83d\\ude00", "n": [1e300, -0.0, null, {"x": []}], "long": "' + "y" * 5000 + '"}'
        document = upload(client, data={"metadata": odd}).json()

        assert document["metadata"] == msgspec.json.decode(odd)
        assert client.get(f"/v1/documents/{document['id']}").json()["metadata"] == document["metadata"]

    def test_the_same_bytes_at_once_are_one_document(self, parts: Parts, redis_server: EmbeddedRedis):
        """Over real connections."""
        answers: list[httpx.Response] = []
        with serving(parts) as client:
            url = f"{client.base_url}/v1/documents"
            send = lambda: answers.append(httpx.post(url, files={"file": ("a.md", ADA)}, timeout=60))  # noqa: E731
            threads = [threading.Thread(target=send) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        assert sorted(answer.status_code for answer in answers) == [200] * 5 + [202]
        assert len({answer.json()["id"] for answer in answers}) == 1

    def test_a_body_of_unknown_length_is_cut_off(self, parts: Parts, redis_server: EmbeddedRedis, settings: Settings):
        """Chunked, over a real connection: nothing announces how long it is."""

        def endless(head: bytes) -> Iterator[bytes]:
            yield head
            for _ in range(10_000):
                yield b"x" * 65_536

        form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.md"\r\n\r\n'
        with serving(parts) as client:
            for url, kind, head in (
                ("/v1/documents", "multipart/form-data; boundary=b", form),
                ("/v1/ask", "application/json", b'"'),
            ):
                try:
                    response = client.post(url, content=endless(head), headers={"content-type": kind})
                except httpx.WriteError:
                    continue  # it hung up on us: just as well
                assert_problem(response, 413)
        assert not [path for path in settings.files_dir.rglob("*") if path.is_file()]


class TestChanges:
    def test_metadata_is_merged_and_null_removes(self, client: Client, three: list[str]):
        url = f"/v1/documents/{three[0]}"
        changed = client.patch(
            url, json={"name": "uno.md", "metadata": {"year": None, "deep": {"a": 1, "b": 2}}}
        ).json()
        assert (changed["name"], changed["metadata"]) == ("uno.md", {"tags": ["a", "b"], "deep": {"a": 1, "b": 2}})
        assert client.patch(url, json={"metadata": {"deep": {"a": None}}}).json()["metadata"]["deep"] == {"b": 2}
        assert names(client, metadata='{"year": 2023}') == []
        assert names(client, metadata='{"tags": "a"}') == ["uno.md"]

    def test_a_document_is_read_as_what_its_file_was_called_before(self, client: Client, ingest: IngestParts):
        """A name that ends like a file of another format counts."""
        for name, title, media_type in (
            ("Sales", "Sales", "text/csv"),
            ("Sales v1.2", "Sales v1.2", "text/csv"),
            ("sales.txt", "sales", "text/plain"),
        ):
            document_id = upload(client, f"city,sold\n{name},2\n".encode(), "sales.csv").json()["id"]
            for new_name in ("other", name):
                client.patch(f"/v1/documents/{document_id}", json={"name": new_name})
            ingest_document(document_id, ingest)
            shown = client.get(f"/v1/documents/{document_id}").json()
            assert (shown["name"], shown["title"], shown["media_type"]) == (name, title, media_type)

    def test_metadata_is_nested_so_deep_and_no_deeper(self, client: Client, three: list[str]):
        def patch(metadata: str) -> httpx.Response:
            body = f'{{"metadata": {metadata}}}'
            return client.patch(url, content=body, headers={"content-type": "application/json"})

        url = f"/v1/documents/{three[0]}"
        assert patch(nested(MAX_DEPTH - 1)).status_code == 200
        for depth in (MAX_DEPTH, 500, 900):
            assert_problem(patch(nested(depth)), 422, "deep")
        assert_problem(patch(nested(5_000)), 400, "deep")
        assert client.get(url).json()["metadata"]["a"] == json.loads(nested(MAX_DEPTH - 1))["a"]

    def test_changes_of_the_wrong_shape_are_refused(self, client: Client, three: list[str]):
        for body in [{"typo": 1}, {"metadata": []}, {"metadata": 1}, {"name": 1}, {"name": ""}, []]:
            assert_problem(client.patch(f"/v1/documents/{three[0]}", json=body), 400)

    def test_a_replaced_document_answers_from_its_old_file_until_the_new_one_is_read(
        self, client: Client, answerable: str, ingest: IngestParts, parts: Parts
    ):
        def found() -> str:
            return str(
                client.post("/v1/search", json={"question": "engine", "top_k": 1}).json()["passages"][0]["title"]
            )

        old_kv = set(parts.kv_store.keys())
        replaced = put(client, answerable, BABBAGE)
        assert (replaced.status_code, replaced.json()["id"], replaced.json()["status"]) == (202, answerable, "accepted")
        assert found() == "Ada Lovelace"
        ingest_document(answerable, ingest)

        assert found() == "Charles Babbage"
        assert client.get(f"/v1/documents/{answerable}/file").content == BABBAGE
        prefix = parts.keys_of(parts.default_collection.tenant_id).prefix()
        assert old_kv & set(parts.kv_store.keys()) == {prefix}, "the old text's KV is gone"
        assert len([path for path in parts.settings.files_dir.rglob("*") if path.is_file()]) == 1

    def test_a_replaced_document_has_title_and_type_of_the_file_that_answers(
        self, client: Client, answerable: str, ingest: IngestParts
    ):
        def shown() -> tuple[str, str]:
            view = client.get(f"/v1/documents/{answerable}").json()
            return view["title"], view["media_type"]

        put(client, answerable, b"<title>Charles Babbage</title><p>He designed the difference engine.", "new.html")
        embedding = set[tuple[str, str]]()
        ingest_document(answerable, ingest, lambda stage, *_: embedding.add(shown()) if stage == "embed" else None)

        assert embedding == {("Ada Lovelace", "text/markdown")}
        assert shown() == ("Charles Babbage", "text/html")

    def test_replacing_with_the_same_bytes_reads_nothing_again(self, client: Client, answerable: str):
        assert put(client, answerable, ADA, "renamed.md").json()["status"] == "ready"
        assert names(client) == ["renamed.md"]

    def test_a_failed_document_is_tried_again_when_the_same_file_is_put_and_a_file_that_was_lost_is_there_again(
        self, client: Client, answerable: str, parts: Parts
    ):
        fail(parts, answerable)
        stored = [path for path in (parts.settings.data_dir / "files").rglob("*") if path.is_file()]
        for path in stored:
            path.unlink()
        depth = parts.queue.depth()

        assert put(client, answerable, ADA, "ada.md").json()["status"] == "accepted"
        assert parts.queue.depth() == depth + 1
        assert [path for path in stored if not path.exists()] == []

    def test_replacing_with_what_another_document_has_is_a_conflict(self, client: Client, answerable: str):
        twin = upload(client, BABBAGE).json()["id"]

        assert_problem(put(client, answerable, BABBAGE), 409, twin)

    def test_only_a_failed_document_is_tried_again(self, client: Client, answerable: str, parts: Parts):
        assert_problem(client.post(f"/v1/documents/{answerable}/retry"), 409, "ready")
        fail(parts, answerable)
        depth = parts.queue.depth()

        retried = client.post(f"/v1/documents/{answerable}/retry")
        assert (retried.status_code, retried.json()["status"], retried.json()["error"]) == (202, "accepted", None)
        assert parts.queue.depth() == depth + 1

    def test_ids_that_lead_nowhere_are_not_found(self, client: Client):
        for document_id in ["x", "0" * 32, "%00", "..%2f..%2fetc", "\U0001f600", "'--", "a" * 5000]:
            url = f"/v1/documents/{document_id}"
            answers = [client.get(url), client.delete(url), client.patch(url, json={}), put(client, document_id, ADA)]
            answers += [client.get(f"{url}/{rest}") for rest in ("file", "chunks", "events")] + [
                client.post(f"{url}/retry")
            ]
            for answer in answers:
                assert_problem(answer, 404)


class TestCollections:
    def test_a_collection_is_made_named_filled_and_deleted(self, client: Client, ingest: IngestParts, parts: Parts):
        made = client.post("/v1/collections", json={"name": " Cafe\u0301 "}).json()
        assert made["name"] == "Caf\u00e9"
        document = upload(client, data={"collection": "Caf\u00e9"}).json()
        ingest_document(document["id"], ingest)
        shown = client.get(f"/v1/collections/{made['id']}").json()
        assert (shown["documents"], shown["chunks"] > 0, shown["bytes"]) == (1, True, len(ADA))
        assert client.patch(f"/v1/collections/{made['id']}", json={"name": "bar"}).json()["id"] == made["id"]
        assert client.get("/v1/collections/bar").json() == shown | {"name": "bar"}

        assert client.delete("/v1/collections/bar").status_code == 204
        assert_problem(client.get(f"/v1/collections/{made['id']}"), 404)
        assert_problem(client.get(f"/v1/documents/{document['id']}"), 404)
        assert set(parts.kv_store.keys()) == {parts.keys_of(parts.default_collection.tenant_id).prefix()}
        assert not [path for path in parts.settings.files_dir.rglob("*") if path.is_file()]

    def test_a_collection_is_found_by_the_very_name_it_was_made_with(self, client: Client, parts: Parts):
        name = " Cafe\u0301 "
        made = client.post("/v1/collections", json={"name": name}).json()

        assert client.get(f"/v1/collections/{name}").json()["id"] == made["id"]
        assert upload(client, data={"collection": name}).json()["collection_id"] == made["id"]
        assert find_collection_ref(parts.database, " default ", name).collection_id == made["id"]
        assert client.post("/v1/search", json={"question": "Ada", "collection": name}).status_code == 200
        found = collections_of(parts.default_collection.tenant_id, parts.database, name)
        assert [one.name for one in found] == ["default", "Caf\u00e9"], (
            "the default one first, as forms choose the first"
        )
        assert (chosen := chosen_collection(found, name)) is not None and chosen.id == made["id"]

    def test_the_same_bytes_in_two_collections_are_two_documents(self, client: Client, ingest: IngestParts):
        client.post("/v1/collections", json={"name": "other"})
        ids = [upload(client, data={"collection": name}).json()["id"] for name in ("default", "other")]
        for document_id in ids:
            ingest_document(document_id, ingest)

        assert len(set(ids)) == 2
        for name, document_id in zip(("default", "other"), ids, strict=True):
            found = client.post("/v1/search", json={"question": "Ada", "collection": name}).json()["passages"]
            assert {passage["document_id"] for passage in found} == {document_id}
        client.delete("/v1/collections/other")
        assert client.get(f"/v1/documents/{ids[0]}/chunks").json()["items"][0]["kv"]["state"] == "stored"

    def test_names_are_taken_once_and_the_default_stays(self, client: Client):
        assert client.post("/v1/collections", json={"name": "a"}).status_code == 201
        assert_problem(client.post("/v1/collections", json={"name": "a"}), 409, "already")
        assert_problem(client.patch("/v1/collections/a", json={"name": "default"}), 409, "already")
        assert client.patch("/v1/collections/a", json={"name": "a"}).status_code == 200
        assert_problem(client.delete("/v1/collections/default"), 409, "default")
        assert_problem(client.patch("/v1/collections/default", json={"name": "b"}), 409, "default")

    def test_bad_names_are_refused(self, client: Client):
        for name in ["", "a\x00", "0" * 32, "x" * 201]:
            assert_problem(client.post("/v1/collections", json={"name": name}), 422, "name")

    def test_pages_of_collections(self, client: Client):
        for name in ("a", "b"):
            client.post("/v1/collections", json={"name": name})
        first = client.get("/v1/collections", params={"limit": 2}).json()
        second = client.get("/v1/collections", params={"limit": 2, "cursor": first["next"]}).json()

        assert [item["name"] for item in first["items"] + second["items"]] == ["a", "b", "default"]

    def test_a_collection_that_is_not_there_is_not_found_anywhere(self, client: Client):
        for name in ["nowhere", "0" * 32, "\x00", "' OR 1=1"]:
            assert_problem(upload(client, data={"collection": name}), 404)
            assert_problem(client.get("/v1/documents", params={"collection": name}), 404)
            for way in ("search", "ask"):
                assert_problem(client.post(f"/v1/{way}", json={"question": "Who?", "collection": name}), 404)


class TestEvents:
    def test_a_watched_document_shows_its_stages_and_the_end(self, client: Client, ingest: IngestParts, parts: Parts):
        document_id = upload(client).json()["id"]
        reading = threading.Timer(1.0, ingest_document, (document_id, ingest))
        reading.start()
        events = list(events_of(client.get(f"/v1/documents/{document_id}/events").text))
        reading.join()

        assert events[0] == ("progress", events[0][1] | {"id": document_id, "status": "accepted"})
        assert (events[-1][0], events[-1][1]["status"]) == ("done", "ready")

    def test_a_watched_collection_tells_of_all_that_is_read(self, client: Client, ingest: IngestParts, parts: Parts):
        ids = [upload(client, body).json()["id"] for body in (ADA, BABBAGE)]
        reading = threading.Timer(0.5, lambda: [ingest_document(document_id, ingest) for document_id in ids])
        reading.start()
        events = list(events_of(client.get("/v1/collections/default/events", params={"until": "finished"}).text))
        reading.join()

        assert events[-1] == ("done", {})
        for document_id in ids:
            seen = [value["status"] for name, value in events if name == "progress" and value["id"] == document_id]
            assert (seen[0], seen[-1]) == ("accepted", "ready")

    def test_a_watched_document_that_is_deleted_ends_the_stream(self, client: Client, parts: Parts):
        document_id = upload(client).json()["id"]
        deleting = threading.Timer(0.7, client.delete, (f"/v1/documents/{document_id}",))
        deleting.start()
        events = list(events_of(client.get(f"/v1/documents/{document_id}/events").text))

        assert events[-1] == ("deleted", {"id": document_id})


class TestAskingOfSome:
    @pytest.fixture
    def both(self, client: Client, ingest: IngestParts) -> dict[str, str]:
        ids = {}
        for name, body in (("ada", ADA), ("babbage", BABBAGE)):
            ids[name] = upload(client, body, data={"metadata": f'{{"about": "{name}"}}'}).json()["id"]
            ingest_document(ids[name], ingest)
        return ids

    def test_filters_and_ids_choose_the_documents(self, client: Client, both: dict[str, str]):
        def found(way: str, **more: object) -> set[str]:
            answer = client.post(f"/v1/{way}", json={"question": "engine"} | more).json()
            return {passage["document_id"] for passage in answer["passages"]}

        for way in ("search", "ask"):
            assert found(way) == set(both.values())
            assert found(way, filter={"about": "ada"}) == {both["ada"]}
            assert found(way, filter={"about": ["ada", "babbage"]}, document_ids=[both["babbage"]]) == {both["babbage"]}
        assert found("search", filter={"about": "nobody"}) == set()
        assert found("ask", filter={"about": "nobody"}) == set()
        assert_problem(client.post("/v1/ask", json={"question": "engine", "document_ids": ["\x00"]}), 404)

    def test_of_like_documents_the_file_is_meant_that_the_question_names(self, client: Client, ingest: IngestParts):
        ids = {}
        for weeks, city in enumerate(("bergen", "lund", "oslo")):
            body = f"# Handbook\n\nThere are {weeks} weeks of paid leave a year.".encode()
            ids[city] = upload(client, body, f"handbook_{city}.md").json()["id"]
            ingest_document(ids[city], ingest)

        def first(question: str) -> str:
            passages = client.post("/v1/search", json={"question": question}).json()["passages"]
            return str(passages[0]["document_id"])

        for city, document_id in ids.items():
            assert first(f"How many weeks of leave are in handbook_{city}.md?") == document_id
        client.patch(f"/v1/documents/{ids['oslo']}", json={"name": "plan_visby.md"}).raise_for_status()
        assert first("How many weeks of leave are in the Visby plan?") == ids["oslo"]

    def test_an_answer_says_where_the_kv_of_each_passage_came_from(
        self, client: Client, both: dict[str, str], engine: EchoEngine
    ):
        engine.stitches = True
        answer = client.post("/v1/ask", json={"question": "engine", "policy": "none"}).json()

        assert {passage["kv"]["source"] for passage in answer["passages"]} == {"host"}
        full = client.post("/v1/ask", json={"question": "engine", "mode": "full"}).json()
        assert {passage["kv"]["source"] for passage in full["passages"]} == {"recomputed"}
        usage = full["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["prompt_tokens_details"] == {"cached_tokens": usage["cached"] + usage["stitched"]}

    def test_a_conversation_comes_after_the_passages(self, client: Client, both: dict[str, str]):
        history = [
            {"role": "user", "content": "Who designed the difference engine?"},
            {"role": "assistant", "content": "Babbage."},
        ]
        alone = client.post("/v1/ask", json={"question": "Where?"}).json()
        told = client.post("/v1/ask", json={"question": "Where?", "history": history}).json()

        assert told["usage"]["prompt"] > alone["usage"]["prompt"]
        best, other = told["passages"]
        assert (best["title"], best["prompt_position"], other["prompt_position"]) == ("Charles Babbage", 1, 0)

    def test_a_conversation_of_the_wrong_shape_is_refused(self, client: Client):
        for history in [[{"role": "system", "content": "x"}], [{"role": "user"}], "x", [[]], [{}] * 201]:
            assert_problem(client.post("/v1/ask", json={"question": "Where?", "history": history}), 400, "history")

    def test_odd_questions_are_answered_or_refused_but_never_break(self, client: Client, both: dict[str, str]):
        for question in ["\x00", "a\x00b", "\U0001f600", "\u202e"]:
            for way in ("search", "ask"):
                assert client.post(f"/v1/{way}", json={"question": question}).status_code in (200, 422)
            assert_problem(
                client.post(
                    "/v1/ask", content=b'{"question": "\\ud800"}', headers={"content-type": "application/json"}
                ),
                400,
            )


def test_known_bytes_get_metadata_that_is_equal_to_python_alone(client: Client):
    upload(client, data={"metadata": '{"draft": 1, "flags": [false]}'})
    again = upload(client, data={"metadata": '{"draft": true, "flags": [0]}'})

    assert msgspec.json.encode(again.json()["metadata"], order="sorted") == b'{"draft":true,"flags":[0]}'
    assert names(client, metadata='{"draft": true, "flags": 0}') == [again.json()["name"]]


def test_known_bytes_with_other_metadata_get_it_and_without_any_keep_what_there_is(client: Client):
    first = upload(client, data={"metadata": '{"year": 2023}'})
    again = upload(client, data={"metadata": '{"year": 2024}'})
    bare = upload(client)

    assert (again.status_code, again.json()["id"], again.json()["metadata"]) == (
        200,
        first.json()["id"],
        {"year": 2024},
    )
    assert (bare.status_code, bare.json()["metadata"]) == (200, {"year": 2024})
    assert len(client.get("/v1/documents", params={"metadata": '{"year": 2024}'}).json()["items"]) == 1
    assert client.get("/v1/documents", params={"metadata": '{"year": 2023}'}).json()["items"] == []
