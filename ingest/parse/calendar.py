"""Events of an invitation (iCalendar, RFC 5545): what, when and where, and whether it is cancelled."""

import re
from dataclasses import dataclass

_FOLD = re.compile(r"\r?\n[ \t]")
_LINE = re.compile(r'([A-Za-z-]+)((?:;[^;:="]+=(?:"[^"]*"|[^;:"]*))*):(.*)')
_ZONE = re.compile(r';TZID="?([^;:"]+)', re.IGNORECASE)
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d(Z?))?")
_ESCAPED = re.compile(r"\\([nN,;\\])")
_LABELS = {
    "SUMMARY": "Event",
    "DTSTART": "Start",
    "DTEND": "End",
    "RRULE": "Repeats",
    "LOCATION": "Location",
    "STATUS": "Status",
}
_DESCRIPTION = "DESCRIPTION"


@dataclass(frozen=True, slots=True)
class Event:
    """The labelled lines of an event, and its description."""

    lines: str
    description: str


def events_of(source: str) -> list[Event]:
    """The events of a calendar, in order, but for those that say nothing."""
    events: list[Event] = []
    open_components: list[str] = []
    values: dict[str, str] = {}
    for line in filter(None, map(_LINE.fullmatch, _FOLD.sub("", source).splitlines())):
        name, parameters, value = line[1].upper(), line[2], line[3]
        match name:
            case "BEGIN":
                open_components.append(value.strip().upper())
                if open_components[-1] == "VEVENT":
                    values = {}
            case "END" if open_components:
                if open_components.pop() == "VEVENT" and any(values.values()):
                    lines = (f"{label}: {values[key]}" for key, label in _LABELS.items() if values.get(key))
                    events.append(Event("\n".join(lines), values.get(_DESCRIPTION, "")))
            case "DTSTART" | "DTEND" if open_components[-1:] == ["VEVENT"]:
                values[name] = _time(value.strip(), parameters)
            case "SUMMARY" | "RRULE" | "LOCATION" | "STATUS" if open_components[-1:] == ["VEVENT"]:
                values[name] = " ".join(_unescaped(value).split())
            case "DESCRIPTION" if open_components[-1:] == ["VEVENT"]:
                values[name] = _unescaped(value).strip()
    return events


def _time(value: str, parameters: str) -> str:
    """A date or time in ISO 8601, with its zone; as it stands if it is neither."""
    match = _TIME.fullmatch(value)
    if match is None:
        return value
    year, month, day, hour, minute, is_utc = match.groups()
    zone = _ZONE.search(parameters)
    time = f" {hour}:{minute}" if hour else ""
    return f"{year}-{month}-{day}{time}" + (" UTC" if is_utc else f" ({zone[1]})" if zone and hour else "")


def _unescaped(value: str) -> str:
    return _ESCAPED.sub(lambda match: "\n" if match[1] in "nN" else match[1], value)
