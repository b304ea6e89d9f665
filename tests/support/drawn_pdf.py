"""PDF pages drawn by hand: words at places, rules and form fields."""

from collections.abc import Sequence
from typing import NamedTuple

from tests.support.made_files import FONT, pdf_of

LINE = 13
"""Points between two lines of a column."""


class Field(NamedTuple):
    """A field of a form at a place, with a value, or `is_ticked` or not."""

    x: float
    y: float
    width: float = 12
    value: str = ""
    is_ticked: bool | None = None
    is_radio: bool = False
    flags: int = 4


def text_at(x: float, y: float, words: str, size: float = 10) -> str:
    return f"BT /F1 {size} Tf {x} {y} Td ({words}) Tj ET\n"


def by_row(*columns: tuple[float, float, Sequence[str]]) -> str:
    """Columns of lines, each from the place of its first line on, drawn from the top down across all of them."""
    lines = [(y - LINE * number, x, line) for x, y, column in columns for number, line in enumerate(column)]
    return "".join(text_at(x, y, line) for y, x, line in sorted(lines, key=lambda line: (-line[0], line[1])))


def drawn_pdf(*pages: str, fields: Sequence[Field] = (), rotation: int = 0, box: str = "0 0 595 842") -> bytes:
    """Pages of these contents. The fields are on the first."""
    first_field = 6 + 2 * len(pages)
    widgets = " ".join(f"{first_field + 3 * number} 0 R" for number in range(len(fields)))
    kids = " ".join(f"{6 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [{widgets}] >> >>".encode(),
        f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>".encode(),
        FONT,
        b"<< >>",
        b"<< >>",
    ]
    for number, content in enumerate(pages):
        annotations = f"/Annots [{widgets}]" if not number else ""
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [{box}] /Rotate {rotation} {annotations} "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {7 + 2 * number} 0 R >>".encode(),
            _stream(content),
        ]
    for number, field in enumerate(fields):
        objects += _field(field, first_field + 3 * number)
    return pdf_of(objects)


def _field(field: Field, number: int) -> tuple[bytes, bytes, bytes]:
    rect = f"{field.x} {field.y} {field.x + field.width} {field.y + 12}"
    shared = f"<< /Type /Annot /Subtype /Widget /Rect [{rect}] /F {field.flags} /T (field{number})"
    form = f"/Type /XObject /Subtype /Form /BBox [0 0 {field.width} 12] /Resources << /Font << /F1 3 0 R >> >>"
    if field.is_ticked is None:
        shown = f"{shared} /FT /Tx /V ({field.value}) /AP << /N {number + 1} 0 R >> >>"
        return shown.encode(), _stream(text_at(2, 3, field.value), form), b"<< >>"
    state = "/Yes" if field.is_ticked else "/Off"
    kind = f"/FT /Btn /Ff {1 << 15 if field.is_radio else 0} /V {state} /AS {state}"
    shown = f"{shared} {kind} /AP << /N << /Yes {number + 1} 0 R /Off {number + 2} 0 R >> >> >>"
    return shown.encode(), _stream(text_at(2, 3, "4"), form), _stream("0 0 12 12 re S", form)


def _stream(content: str, entries: str = "") -> bytes:
    data = content.encode("cp1252")
    return b"<< %b /Length %d >>\nstream\n%b\nendstream" % (entries.encode(), len(data), data)
