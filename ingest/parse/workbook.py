"""Parser for Excel workbooks: each visible sheet is a page of rows with their column labels."""

import io
import re
from collections.abc import Mapping
from datetime import datetime, time
from zipfile import ZipFile, ZipInfo

from python_calamine import CalamineError, CalamineWorkbook, SheetTypeEnum, SheetVisibleEnum

from ingest.parse.archive import Check, damaged, opened
from ingest.parse.composer import Composer
from ingest.parse.omissions import Omissions
from ingest.parse.parsed import Parsed
from ingest.parse.sniff import Format
from ragkv.errors import TooLarge

MAX_CELLS = 8_000_000
_PLACE = re.compile(r"([A-Za-z]{1,4})([0-9]{1,9})")
_PANIC = "PanicException"


def read_workbook(body: bytes, fallback_title: str, omissions: Omissions) -> Parsed:
    """Values as they are stored, dates and times in ISO 8601; formulas by their last results. Hidden and empty
    sheets, charts and comments are left out."""
    composer = Composer()
    with opened(body, "workbook", _CheckCells()) as archive:
        title = archive.core_title()
        try:
            _compose(body, composer)
        except CalamineError:
            raise damaged("workbook") from None
        except BaseException as error:  # the library's Rust panics are no Exception, and cannot be imported
            if type(error).__name__ != _PANIC:
                raise
            raise damaged("workbook") from None
    return composer.parsed(title or fallback_title, Format.XLSX)


def _compose(body: bytes, composer: Composer) -> None:
    with CalamineWorkbook.from_filelike(io.BytesIO(body)) as workbook:
        for index, sheet in enumerate(workbook.sheets_metadata):
            if sheet.typ != SheetTypeEnum.WorkSheet or sheet.visible != SheetVisibleEnum.Visible:
                continue
            cells = workbook.get_sheet_by_index(index)
            if cells.height:
                composer.page()
                composer.heading(sheet.name, level=1)
                composer.table([_value(cell) for cell in row] for row in cells.iter_rows())


class _CheckCells(Check):
    """Bounds the rectangle that the cells of a sheet span: the library allots it, however few of them have a value."""

    max_xml_bytes = 256 * 1024 * 1024
    max_elements = 6_000_000

    def part(self, archive: ZipFile, entry: ZipInfo) -> None:
        self._row = self._column = 0
        self._bounds: tuple[int, int, int, int] | None = None
        super().part(archive, entry)

    def element(self, name: str, attributes: Mapping[str, str]) -> None:
        super().element(name, attributes)
        match name.rpartition(":")[2]:
            case "row":
                number = attributes.get("r", "")
                self._row = int(number) if number.isdecimal() else self._row + 1
                self._column = 0
            case "c":
                self._column += 1
                if place := _PLACE.fullmatch(attributes.get("r", "")):
                    self._row, self._column = int(place[2]), _column(place[1])
            case "v" | "is":
                self._extend(self._row, self._column)

    def _extend(self, row: int, column: int) -> None:
        top, left, bottom, right = self._bounds or (row, column, row, column)
        top, left, bottom, right = min(top, row), min(left, column), max(bottom, row), max(right, column)
        if (bottom - top + 1) * (right - left + 1) > MAX_CELLS:
            raise TooLarge(
                f"a sheet spans {bottom - top + 1:,} rows by {right - left + 1:,} columns: "
                "delete cells far from the rest, or save the sheet as CSV"
            )
        self._bounds = top, left, bottom, right


def _column(letters: str) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - ord("A") + 1
    return number


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).upper()
        case float():
            return f"{value:.15g}"
        case datetime() if value.time() == time():
            return value.date().isoformat()
        case datetime():
            return value.isoformat(" ", "minutes" if value.second == 0 else "seconds")
    return str(value)
