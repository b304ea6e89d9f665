"""Settings in a form that may be shown: secrets are hidden."""

from typing import Any

import msgspec

from ragkv.settings import PREFIX, Settings
from ragkv.urls import HIDDEN, without_secrets

SECRET_WORDS = frozenset({"key", "password", "secret", "token", "credentials", "headers"})
"""A text setting with one of these words in its name is never shown. Numbers are: days of keys, for one."""


class ShownSetting(msgspec.Struct, frozen=True):
    """A setting by the name of its variable. `value` as text; None if it is not set."""

    name: str
    value: str | None
    is_default: bool


def shown_settings(settings: Settings) -> list[ShownSetting]:
    """Every setting, in the order in which they are declared."""
    values = [(field, getattr(settings, field.name)) for field in msgspec.structs.fields(settings)]
    return [
        ShownSetting(f"{PREFIX}{field.name.upper()}", _text(field.name, value), value == field.default)
        for field, value in values
    ]


def _text(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return str(value)
    return HIDDEN if SECRET_WORDS & set(name.split("_")) else without_secrets(value)
