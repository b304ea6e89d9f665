"""A data folder that the code of commit 0a15b553 left behind, read by the present code. Its modules had other names.

`data_folder_0038.tar.xz` holds that folder and a backup (schema 0038), the tiny models that it was made with, what the
service answered then, the tensors of each KV file as they were read back then, and `make.py`, which made all of this.
A change that has documents read again, such as another ANALYSIS_VERSION or LAYOUT_VERSION, fails here: if it is meant,
the changelog has to say so.
"""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ragkv.chunk import Passage, prompt_text
from ragkv.errors import Unauthorised
from ragkv.kv.format import KVFormat
from ragkv.retrieve.encoder import embed_chunks
from ragkv.service.backup.dump import snapshot
from ragkv.service.backup.restore import restore
from ragkv.service.base.embedded_redis import EmbeddedRedis
from ragkv.service.base.migrate import check_drift, revision_of
from ragkv.service.checks.check import WHILE_STOPPED
from ragkv.service.checks.fsck import examine
from ragkv.service.documents.requeue import stuck_ids
from ragkv.service.keys.keys import authenticate
from ragkv.service.parts import Parts
from ragkv.settings import Settings
from tests.support.echo_engine import EchoEngine
from tests.support.made_kv import stored_kv
from tests.support.over_http import client_of
from tests.support.stored_rows import rows
from workers.sweep import Sweeper

REVISION = "0038"
ARCHIVE = Path(__file__).parents[1] / "support" / f"data_folder_{REVISION}.tar.xz"
FORMATS = {"default": "bf16", "eight bits": "int8", "four bits": "int4", "half": "bf16", "stream": "int8"}
"""Of the KV of each collection."""
COMPRESSIONS = {"half": "snapkv 0.5", "stream": "streaming 0.25"}

Expected = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture
def expected(folder: Path) -> Expected:
    return msgspec.json.decode((folder / "expected.json").read_bytes())


@pytest.fixture
def settings(folder: Path) -> Settings:
    return Settings(
        data_dir=folder / "data",
        model=str(folder / "model"),
        encoder=str(folder / "encoder"),
        chunk_tokens=64,
        max_model_len=4096,
    )


@pytest.fixture
def parts(settings: Settings) -> Iterator[Parts]:
    """Parts over the folder, whose database is not migrated yet."""
    parts = Parts(settings, EchoEngine(settings))
    yield parts
    parts.close()


@pytest.fixture
def tensors(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    """Tensors by KV key and name."""
    by_key: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in load_file(folder / "kv.safetensors").items():
        key, _, part = name.partition(".")
        by_key.setdefault(key, {})[part] = tensor
    return by_key


def assert_held(items: list[dict[str, Any]], old_items: list[dict[str, Any]]) -> None:
    """Check items against those of the old code. They may have more fields."""
    assert [{name: item[name] for name in old_items[0]} for item in items] == old_items


def test_every_row_is_still_there_after_the_upgrade(parts: Parts):
    with snapshot(parts.database) as connection:
        assert revision_of(connection) == REVISION
        rows_of_old_code = rows(connection)
    parts.prepare()
    with snapshot(parts.database) as connection:
        rows_of_new_code = rows(connection)
    for table, old_rows in rows_of_old_code.items():
        assert_held(rows_of_new_code[table], old_rows)
    assert len(rows_of_old_code["documents"]) == 5 and len(rows_of_old_code["chunks"]) == 7
    check_drift(parts.settings.database)


def test_nothing_is_read_again_or_queued_and_a_sweep_leaves_the_folder_whole(
    parts: Parts, redis_server: EmbeddedRedis, tensors: dict[str, dict[str, torch.Tensor]]
):
    parts.prepare()
    assert parts.refresh_outdated() == 0
    assert stuck_ids(parts.database) == []
    Sweeper(parts).sweep()
    assert parts.queue.depth() == 0
    with snapshot(parts.database) as connection:
        present = rows(connection)
    assert {job["status"] for job in present["jobs"]} <= {"done"}  # none once they are pruned for their age
    assert [document["status"] for document in present["documents"]] == ["ready"] * 5
    assert set(parts.kv_store.keys()) == tensors.keys()
    assert [finding for finding in examine(WHILE_STOPPED, parts) if finding.found] == []


def test_kv_is_found_under_the_keys_that_are_made_now(parts: Parts, expected: Expected):
    parts.prepare()
    with snapshot(parts.database) as connection:
        collections = {row["name"]: row["id"] for row in rows(connection)["collections"]}
    assert collections.keys() == FORMATS.keys()
    tenant_id = parts.default_collection.tenant_id
    for name, collection_id in collections.items():
        chunks = parts.source.ready_chunks(tenant_id, collection_id)
        keys = parts.kv_keys_of(tenant_id, collection_id)
        located = parts.planner.locate([Passage(chunk, 1.0, 1) for chunk in chunks], keys)
        assert chunks and located.missing == frozenset()
        assert located.prefix == expected["prefix"]
        for passage in located.passages:
            assert passage.making.kv_format == KVFormat(FORMATS[name])
            assert (passage.making.compression.name if passage.making.compression else None) == COMPRESSIONS.get(name)
            assert bool(passage.offsets) == (name in COMPRESSIONS)


def test_each_kv_file_has_the_tensors_that_were_written(parts: Parts, tensors: dict[str, dict[str, torch.Tensor]]):
    layout = parts.layout
    assert set(parts.kv_store.keys()) == tensors.keys()
    for key, old_tensors in tensors.items():
        kv = stored_kv(parts.kv_store, key, layout)
        assert kv is not None
        keys, values = (torch.empty_like(old_tensors[name]) for name in ("keys", "values"))
        kv.copy_into(keys, values, slice(0, layout.layers), 0)
        present = {"keys": keys, "values": values, "initial": kv.initial, "local": kv.local, "mean_keys": kv.mean_keys}
        present |= {} if kv.kept is None else {"kept": kv.kept}
        assert present.keys() == old_tensors.keys()
        for name, tensor in present.items():
            assert tensor.dtype == old_tensors[name].dtype and torch.equal(tensor, old_tensors[name]), (key, name)


def test_each_chunk_has_the_tokens_and_vectors_that_are_made_of_it_now(parts: Parts, expected: Expected):
    parts.prepare()
    for document in expected["documents"]:
        points = {point.chunk_id: point.vectors for point in parts.source.points([document["id"]])}
        chunks = parts.source.chunks(parts.default_collection.tenant_id, list(points))
        assert len(chunks) == document["chunks"]
        vectors_now = embed_chunks(parts.encoder, [(chunk.title, chunk.text) for chunk in chunks])
        for chunk, vectors in zip(chunks, vectors_now, strict=True):
            assert np.allclose(points[chunk.id].dense, vectors.dense, atol=1e-4)
            assert np.array_equal(points[chunk.id].indices, vectors.indices)
            assert np.array_equal(points[chunk.id].values, vectors.values)
            assert chunk.token_ids == tuple(parts.tokenizer.encode(prompt_text(chunk.title, chunk.text)))


def test_the_service_finds_shows_and_answers_the_same_to_the_same_api_key(
    parts: Parts, redis_server: EmbeddedRedis, expected: Expected
):
    parts.prepare()
    with client_of(parts) as client:
        assert client.get("/v1/documents").status_code == 401
        client.headers["authorization"] = f"Bearer {expected['revoked_api_key']}"
        assert client.get("/v1/documents").status_code == 401
        client.headers["authorization"] = f"Bearer {expected['api_key']}"
        assert_held(client.get("/v1/documents").json()["items"], expected["documents"])
        for document in expected["documents"]:
            body = client.get(f"/v1/documents/{document['id']}/file").content
            assert len(body) == document["bytes"] and body.startswith(b"# ")
        passages = client.post("/v1/search", json={"question": "analytical engine"}).json()["passages"]
        assert_held(passages, expected["passages"])
        for collection in FORMATS.keys() - {"default"}:
            question = {"question": "What do symmetries keep?", "collection": collection}
            (passage,) = client.post("/v1/search", json=question).json()["passages"]
            assert passage["text"].endswith(f"{collection}.")
        answer = client.post("/v1/ask", json={"question": "Who wrote the first program?"}).json()
        assert answer["answer"] == expected["answer"] and answer["citations"]


def test_a_backup_of_the_old_code_is_restored(parts: Parts, folder: Path, expected: Expected, tmp_path: Path):
    """On a machine that has no data folder yet."""
    target = Parts(msgspec.structs.replace(parts.settings, data_dir=tmp_path / "target"))
    restored = restore(folder / "backup", target)
    assert (restored.documents, restored.files, restored.lost_files) == (5, 5, 0)
    assert authenticate(expected["api_key"], target.database).tenant_id == target.default_collection.tenant_id
    with pytest.raises(Unauthorised, match="revoked"):
        authenticate(expected["revoked_api_key"], target.database)
    with snapshot(target.database) as restored_database, snapshot(parts.database) as old_database:
        assert_held(rows(restored_database)["chunks"], rows(old_database)["chunks"])
    target.close()
