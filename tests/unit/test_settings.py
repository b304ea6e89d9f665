"""Settings: defaults, sources, and what is refused."""

import re
from pathlib import Path

import pytest

from ragkv.errors import Rejected
from ragkv.settings import CLIENT_KEY, PREFIX, SETTINGS_FILE, Settings
from ragkv.stitch.policies import ALIASES

ROOT = Path(__file__).parents[2]
SETTINGS_PAGE = ROOT / "docs" / "SETTINGS.md"


def test_defaults_need_no_environment():
    assert Settings.from_env({}) == Settings()


def test_names_without_the_prefix_are_not_ours():
    assert Settings.from_env({"PATH": "/bin", "PORT": "1"}) == Settings()


def test_a_clients_api_key_is_no_setting_and_is_ignored():
    assert Settings.from_env({"RAGKV_API_KEY": "rk-1"}) == Settings()


def test_values_take_their_type():
    settings = Settings.from_env(
        {
            "RAGKV_DATA_DIR": "/srv/ragkv",
            "RAGKV_PORT": "81",
            "RAGKV_ENFORCE_EAGER": "false",
            "RAGKV_KV_CACHE_GIB": "1.5",
        }
    )

    assert settings.data_dir == Path("/srv/ragkv")
    assert (settings.port, settings.enforce_eager, settings.kv_cache_gib) == (81, False, 1.5)


def test_a_typo_is_refused_with_the_nearest_name():
    with pytest.raises(Rejected, match=r"RAGKV_CHUNK_TOKEN: did you mean RAGKV_CHUNK_TOKENS\?"):
        Settings.from_env({"RAGKV_CHUNK_TOKEN": "512"})


def test_a_value_out_of_range_is_refused(subtests: pytest.Subtests):
    for name, value in [
        ("RAGKV_PORT", "eighty"),
        ("RAGKV_PORT", "-1"),
        ("RAGKV_PORT", "65536"),
        ("RAGKV_CHUNK_TOKENS", "31"),
        ("RAGKV_TOP_K", "-1"),
        ("RAGKV_RECOMPUTE_RATIO", "1.1"),
        ("RAGKV_RECOMPUTE_POLICY", "guess"),
        ("RAGKV_BLOCK_SIZE", "65"),
        ("RAGKV_RECOMPUTE_PASSAGES", "-1"),
    ]:
        with subtests.test(name=name, value=value), pytest.raises(Rejected):
            Settings.from_env({name: value})


def test_a_value_of_another_type_or_range_is_refused_with_what_is_wanted(subtests: pytest.Subtests):
    for name, value, wanted in [
        ("RAGKV_TOP_K", "many", "a whole number above 0"),
        ("RAGKV_TOP_K", "0", "a whole number above 0"),
        ("RAGKV_KV_CACHE_GIB", "0", "a number above 0"),
        ("RAGKV_MAX_KV_BYTES", "-1", "a whole number, 0 or more"),
        ("RAGKV_KV_WAIT_MS", "-1", "a number, 0 or more"),
        ("RAGKV_BLOCK_SIZE", "many", "a whole number"),
        ("RAGKV_RECOMPUTE_RATIO", "a tenth", "a number"),
        ("RAGKV_OCR", "maybe", "true or false"),
        ("RAGKV_KV_FORMAT", "int2", "one of bf16, int8, int4"),
        ("RAGKV_LOG_FORMAT", "xml", "one of auto, console, json"),
    ]:
        refusal = pytest.raises(Rejected, match=f"^{name}={value}: give {wanted}$")
        with subtests.test(name=name, value=value), refusal:
            Settings.from_env({name: value})


def test_chunks_that_fit_into_no_prompt_are_refused():
    with pytest.raises(Rejected, match=r"RAGKV_CHUNK_TOKENS=600 .* RAGKV_MAX_MODEL_LEN \(512\)"):
        Settings.from_env({"RAGKV_CHUNK_TOKENS": "600", "RAGKV_MAX_MODEL_LEN": "512"})


def test_what_was_removed_is_refused_with_the_reason(subtests: pytest.Subtests):
    for name, value, reason in [
        ("RAGKV_RERANKER", "qcache", "^RAGKV_RERANKER=qcache was removed: .* recall@5"),
        ("RAGKV_KV_REMOTE_FAULTS", "errors=1", "^RAGKV_KV_REMOTE_FAULTS was removed: "),
        ("RAGKV_KV_WAIT_TOKEN_MS", "1", "^RAGKV_KV_WAIT_TOKEN_MS was removed: RAGKV_KV_WAIT_MS also "),
        (
            "RAGKV_SINK_AWARE",
            "true",
            "^RAGKV_SINK_AWARE was removed: attention to the prefix always counts .* Unset it$",
        ),
    ]:
        with subtests.test(name=name), pytest.raises(Rejected, match=reason):
            Settings.from_env({name: value})


def test_a_url_that_cannot_be_read_is_refused_and_not_shown(subtests: pytest.Subtests):
    for name, value in [
        ("RAGKV_REDIS_URL", "localhost:6379"),
        ("RAGKV_REDIS_URL", "http://localhost:6379"),
        ("RAGKV_REDIS_URL", "redis://localhost:secret"),
        ("RAGKV_REDIS_URL", "redis://:se/cret@localhost:6379"),
        ("RAGKV_QDRANT_URL", "http://h:secret"),
        ("RAGKV_QDRANT_URL", "h:secret"),
        ("RAGKV_QDRANT_URL", "http://h:65536"),
        ("RAGKV_QDRANT_URL", "http://[::1"),
        ("RAGKV_QDRANT_URL", "grpc://h:6334"),
        ("RAGKV_ENGINE_URL", "engine:8001"),
        ("RAGKV_ENGINE_URL", "http://engine:secret"),
        ("RAGKV_INGEST_ENGINE_URL", "engine"),
        ("RAGKV_PUBLIC_URL", "rag.acme.com"),
        ("RAGKV_PUBLIC_URL", "http://[::1"),
        ("RAGKV_PUBLIC_URL", "https://rag.acme.com/rag"),
    ]:
        with subtests.test(name=name, value=value):
            with pytest.raises(Rejected, match=name) as refused:
                Settings.from_env({name: value})

            assert value not in str(refused.value) and "secret" not in str(refused.value)


def test_addresses_are_taken_as_they_are(subtests: pytest.Subtests):
    for name, value in [
        ("redis_url", "redis://:p%2Fw@localhost:6379/0"),
        ("redis_url", "rediss://localhost"),
        ("redis_url", "unix:///run/redis.sock"),
        ("qdrant_url", "http://[::1]:6333"),
        ("qdrant_url", "qdrant:6333"),
        ("qdrant_url", "https://qdrant/prefix"),
        ("engine_url", "http://engine:8001/v1"),
        ("port", 0),
    ]:
        with subtests.test(name=name, value=value):
            assert getattr(Settings.of({name: value}), name) == value


def test_an_origin_that_no_browser_sends_is_refused_with_the_right_form(subtests: pytest.Subtests):
    for value in (
        "chat.example.com", "https://chat.example.com/", "https://Chat.example.com", "https://chat.example.com:443",
        "http://localhost:80", "https://a.example https://b.example", "https://*.example.com", "null",
        "https://user@chat.example.com", "http://localhost:3000,https://x/y",
    ):  # fmt: skip
        with subtests.test(value), pytest.raises(Rejected, match=r"^RAGKV_CORS_ORIGINS: .* like https://chat\.example"):
            Settings.from_env({"RAGKV_CORS_ORIGINS": value})
    for value in ("", "*", "http://[::1]:3000", "tauri://localhost", "http://localhost:3000, https://chat.example.com"):
        with subtests.test(value):
            settings = Settings.from_env({"RAGKV_CORS_ORIGINS": value})
            assert settings.allowed_origins == set(value.split(", ")) - {""}


def test_a_password_of_the_wrong_type_is_not_shown(tmp_path: Path):
    (tmp_path / "ragkv.toml").write_text("kv_remote_secret_key = 271828")

    with pytest.raises(Rejected, match=r"^RAGKV_KV_REMOTE_SECRET_KEY: give a text$"):
        Settings.from_env({"RAGKV_SETTINGS": str(tmp_path / "ragkv.toml")})


def test_a_toml_file_gives_settings_and_the_environment_overrides_them(tmp_path: Path):
    file = tmp_path / "ragkv.toml"
    file.write_text('data_dir = "/srv/x"\nport = 81\ntop_k = 4\n')

    settings = Settings.from_env({"RAGKV_SETTINGS": str(file), "RAGKV_PORT": "82"})

    assert (settings.data_dir, settings.port, settings.top_k) == (Path("/srv/x"), 82, 4)


@pytest.mark.parametrize("name", ["top_k", "TOP_K", "ragkv_top_k", "RAGKV_TOP_K"])
def test_a_name_in_the_file_may_have_the_prefix_and_any_case(tmp_path: Path, name: str):
    file = tmp_path / "ragkv.toml"
    file.write_text(f"{name} = 4\n")

    assert Settings.from_env({"RAGKV_SETTINGS": str(file)}).top_k == 4


def test_a_setting_in_two_spellings_is_refused(tmp_path: Path):
    file = tmp_path / "ragkv.toml"
    file.write_text("top_k = 4\nRAGKV_TOP_K = 8\n")

    with pytest.raises(Rejected, match=rf"{file} has RAGKV_TOP_K twice"):
        Settings.from_env({"RAGKV_SETTINGS": str(file)})


def test_the_file_that_the_docs_show_is_read(tmp_path: Path):
    file = tmp_path / "ragkv.toml"
    file.write_text(re.search(r"```toml\n(.*?)```", SETTINGS_PAGE.read_text(), re.DOTALL)[1])

    settings = Settings.from_env({"RAGKV_SETTINGS": str(file)})

    assert (settings.data_dir, settings.top_k, settings.recompute_ratio) == (Path("/srv/ragkv"), 8, 0.2)


def test_an_unknown_name_in_the_file_is_refused_with_the_file(tmp_path: Path):
    file = tmp_path / "ragkv.toml"
    file.write_text("prot = 81\n")

    with pytest.raises(Rejected, match=rf"prot in {file}: did you mean RAGKV_PORT\?"):
        Settings.from_env({"RAGKV_SETTINGS": str(file)})


@pytest.mark.parametrize("content", ["port = ", None])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: str | None):
    file = tmp_path / "ragkv.toml"
    if content is not None:
        file.write_text(content)

    with pytest.raises(Rejected, match="cannot read"):
        Settings.from_env({"RAGKV_SETTINGS": str(file)})


def test_everything_kept_lies_under_the_data_folder():
    settings = Settings(data_dir=Path("/srv/ragkv"))

    paths = (settings.kv_dir, settings.files_dir, settings.models_dir, settings.redis_socket)
    assert all(path.is_relative_to("/srv/ragkv") for path in paths)
    assert settings.database == "sqlite:////srv/ragkv/ragkv.sqlite3"


@pytest.mark.parametrize("days", ["-1", "1", "6"])
def test_questions_are_kept_as_long_as_the_statistics_show_them(days: str):
    with pytest.raises(Rejected, match="RAGKV_QUESTION_RETENTION_DAYS"):
        Settings.from_env({"RAGKV_QUESTION_RETENTION_DAYS": days})


@pytest.mark.parametrize("days", [0, 7])
def test_or_for_ever(days: int):
    assert Settings.from_env({"RAGKV_QUESTION_RETENTION_DAYS": str(days)}).question_retention_days == days


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_a_policy_may_be_named_by_its_paper(alias: str, name: str):
    assert Settings.from_env({"RAGKV_RECOMPUTE_POLICY": alias}).recompute_policy == name


def test_a_policy_that_is_no_text_is_refused(tmp_path: Path):
    (tmp_path / "ragkv.toml").write_text('recompute_policy = ["head"]')

    with pytest.raises(Rejected, match=r"^RAGKV_RECOMPUTE_POLICY="):
        Settings.from_env({"RAGKV_SETTINGS": str(tmp_path / "ragkv.toml")})


def test_every_setting_has_its_row_in_the_docs():
    rows = re.findall(r"^\| (`RAGKV_[^|]+) \|", SETTINGS_PAGE.read_text(), re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`(RAGKV_\w+)`", row)) == sorted(
        f"{PREFIX}{name.upper()}" for name in Settings.__struct_fields__
    )


def test_every_variable_that_the_docs_name_exists(subtests: pytest.Subtests):
    for page in [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs/operations").glob("*.md")),
    ]:
        with subtests.test(page.name):
            known = {f"{PREFIX}{name.upper()}" for name in Settings.__struct_fields__} | {SETTINGS_FILE, CLIENT_KEY}

            assert set(re.findall(r"\bRAGKV_[A-Z0-9_]+", page.read_text())) - known == set()
