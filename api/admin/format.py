"""Template filters: numbers, sizes, durations and times in readable form."""

from collections.abc import Callable
from datetime import datetime

from markupsafe import Markup

from ragkv.text import plural

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024
_FEW = 10
_MOST, _ALL = 99, 100
_SECOND_MS = 1000


def number(value: float) -> str:
    """An integer with thousands separators: 12,345."""
    return f"{value:,.0f}"


def size(num_bytes: float) -> str:
    """A size in bytes: 812 B, 9.3 KiB, 42 MiB."""
    value, unit = float(num_bytes), _UNITS[0]
    for unit in _UNITS:
        if value < _STEP or unit == _UNITS[-1]:
            break
        value /= _STEP
    digits = 1 if unit != _UNITS[0] and value < _FEW else 0
    return f"{value:,.{digits}f} {unit}"


def moment(value: datetime | None) -> str:
    """A <time> element in UTC; in the browser it changes to the reader's time zone (static/times.js)."""
    if value is None:
        return "never"
    return Markup('<time datetime="{}">{}</time>').format(
        value.isoformat(timespec="seconds"), value.strftime("%Y-%m-%d %H:%M UTC")
    )


def duration(ms: float) -> str:
    """A duration given in milliseconds: 8.2 ms, 182 ms, 1.21 s, 14.0 s."""
    if ms < _SECOND_MS:
        return f"{ms:.1f} ms" if ms < _FEW else f"{ms:.0f} ms"
    return f"{ms / _SECOND_MS:.2f} s" if ms < _FEW * _SECOND_MS else f"{ms / _SECOND_MS:.1f} s"


def percent(share: float) -> str:
    """A share in percent: 84%, 3.2%, 0%, 99.7%."""
    value = round(share * 100, 1)
    return f"{value:.1f}%" if 0 < value < _FEW or _MOST < value < _ALL else f"{value:.0f}%"


def faster(times: float) -> str:
    """Times that something is faster than what it is compared with: 2.3 times faster, 1.4 times slower."""
    return f"{times:.1f}× faster" if times >= 1 else f"{1 / times:.1f}× slower"


FILTERS: dict[str, Callable[..., str]] = {"number": number, "size": size, "moment": moment, "plural": plural}
FILTERS |= {"duration": duration, "percent": percent, "faster": faster}
