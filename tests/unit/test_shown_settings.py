"""Settings as people may see them."""

import pytest

from api.admin.administration import shown_settings
from ragkv.settings import Settings
from ragkv.urls import HIDDEN, without_secrets


def shown(**given: object) -> dict[str, str | None]:
    return {setting.name: setting.value for setting in shown_settings(Settings.of(given))}


def test_every_setting_is_shown_with_the_name_of_its_variable():
    assert list(shown()) == [f"RAGKV_{name.upper()}" for name in Settings.__struct_fields__]


def test_defaults_are_told_from_what_was_set():
    given = {setting.name: setting.is_default for setting in shown_settings(Settings.of({"top_k": 4, "hops": 2}))}

    assert (given["RAGKV_TOP_K"], given["RAGKV_HOPS"], given["RAGKV_MODEL"]) == (False, True, True)


def test_values_are_text_and_none_where_there_is_none():
    values = shown(enforce_eager="true")

    assert values["RAGKV_ENFORCE_EAGER"] == "true"
    assert values["RAGKV_DATA_DIR"] == ".ragkv"
    assert values["RAGKV_ENGINE_URL"] is None


def test_secrets_are_hidden():
    values = shown(engine_api_key="sesame", qdrant_api_key="sesame", database_url="postgresql://me:sesame@db/ragkv")

    assert "sesame" not in repr(values)
    assert values["RAGKV_ENGINE_API_KEY"] == HIDDEN
    assert values["RAGKV_DATABASE_URL"] == f"postgresql://me:{HIDDEN}@db/ragkv"


def test_a_number_with_a_secret_s_word_in_its_name_is_shown():
    assert shown()["RAGKV_OIDC_KEY_DAYS"] == "90"


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("redis://:sesame@cache:6379/0", f"redis://:{HIDDEN}@cache:6379/0"),
        ("https://sesame@engine/v1", f"https://{HIDDEN}@engine/v1"),
        ("postgresql://u:p@ss@db/x?sslmode=require&password=sesame", f"postgresql://u:{HIDDEN}@db/x?sslmode=require&password={HIDDEN}"),
        ("https://x/y?api_key=sesame#z", f"https://x/y?api_key={HIDDEN}#z"),
        ("http://engine:8001/v1", "http://engine:8001/v1"),
        ("postgresql://ragkv@/ragkv?host=/run", f"postgresql://{HIDDEN}@/ragkv?host=/run"),
        ("Answer: now", "Answer: now"),
        ("http://[half", "http://[half"),
    ],
)  # fmt: skip
def test_urls_keep_everything_but_their_secrets(url: str, safe: str):
    assert without_secrets(url) == safe
