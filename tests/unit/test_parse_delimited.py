"""CSV and similar files: their dialects and headers."""

import csv
from functools import partial

import pytest

from ingest.parse import parse
from ragkv.errors import TooLarge
from tests.support.growth import assert_linear, read_or_refuse


def lines_of(source: str, name: str = "a.csv") -> list[str]:
    return parse(name, source.encode()).text.replace("\n\n", "\n").split("\n")


DIALECTS = {
    "decimal commas": (
        "Station;Temp, °C;Druck, hPa\nAlm;1,5;1013,2\nBach;2,5;1011,7\n",
        ["Station: Alm | Temp, °C: 1,5 | Druck, hPa: 1013,2", "Station: Bach | Temp, °C: 2,5 | Druck, hPa: 1011,7"],
    ),
    "decimal commas without header": ("Januar;1,5;2,5\nMärz;5,5;6,5\n", ["Januar | 1,5 | 2,5", "März | 5,5 | 6,5"]),
    "places": ("Ort;Lage\nOslo;59,91\nMolde;62,74\n", ["Ort: Oslo | Lage: 59,91", "Ort: Molde | Lage: 62,74"]),
    "amounts": ("Betrag|Am\n1.234,50 €|01.02.2024\n7,00 €|02.02.2024\n", [
        "Betrag: 1.234,50 € | Am: 01.02.2024", "Betrag: 7,00 € | Am: 02.02.2024",
    ]),
    "carets": ("Name^Price\nRohr^1,50\nHahn^2,75\n", ["Name: Rohr | Price: 1,50", "Name: Hahn | Price: 2,75"]),
    "pipes": ("Name|Note|Qty\nRohr|a,b,c|1\nHahn|d,e,f|2\n", ["Name: Rohr | Note: a,b,c | Qty: 1", "Name: Hahn | Note: d,e,f | Qty: 2"]),
    "lists in cells": ("name,tags\nAda,x;y;z\nBo,x;w\n", ["name: Ada | tags: x;y;z", "name: Bo | tags: x;w"]),
    "single quotes": ("name,remark,price\nNut,'small, grey',3\nBolt,'long, black',5\n", [
        "name: Nut | remark: small, grey | price: 3", "name: Bolt | remark: long, black | price: 5",
    ]),
    "apostrophes": ("name,said\nAda,'tis so\nBo,rock 'n' roll\n", ["name: Ada | said: 'tis so", "name: Bo | said: rock 'n' roll"]),
    "escapes": ('name,said,n\nAda,"She said \\"no, never\\", then",1\nBo,"\\"yes\\"",2\n', [
        'name: Ada | said: She said "no, never", then | n: 1', 'name: Bo | said: "yes" | n: 2',
    ]),
    "escaped delimiters": ("name,town,n\nAda,Oslo\\, Norway,1\nBo,Kiel\\, Germany,2\n", [
        "name: Ada | town: Oslo, Norway | n: 1", "name: Bo | town: Kiel, Germany | n: 2",
    ]),
    "backslashes": ('name,path\nAda,"C:\\new, x"\nBo,"D:\\temp"\n', ["name: Ada | path: C:\\new, x", "name: Bo | path: D:\\temp"]),
    "inches": ('Part,Size,Price\nPipe,5" long,12\nTube,9",16\n', ['Part: Pipe | Size: 5" long | Price: 12', 'Part: Tube | Size: 9" | Price: 16']),
    "line feeds": ('Name,Address,Phone\nAda,"Quay 4\nMolde",111\nBea,"Hill 9\nOslo",222\n', [
        "Name: Ada | Address: Quay 4 Molde | Phone: 111", "Name: Bea | Address: Hill 9 Oslo | Phone: 222",
    ]),
    "declared": ("sep=;\nName;Preis, neu\nRohr;1,50\nHahn;2,75\n", ["Name: Rohr | Preis, neu: 1,50", "Name: Hahn | Preis, neu: 2,75"]),
}  # fmt: skip


def test_the_dialect_is_the_one_that_fits_all_rows(subtests: pytest.Subtests):
    for kind, (source, expected) in DIALECTS.items():
        with subtests.test(kind):
            assert lines_of(source)[-2:] == expected


def test_rows_far_below_decide_too():
    start = "".join(f"a{n},b;c{n},d\n" for n in range(3_000))
    assert lines_of(start + "".join(f"x{n};y\n" for n in range(9_000)))[-1] == "a0,b: x8999 | c0,d: y"


def test_a_name_that_tells_tabs_is_a_hint_and_no_more():
    assert lines_of("Surname, name\tCity, country\nOsen, Ida\tMolde, Norway\n", "a.tsv")[-1] == (
        "Surname, name: Osen, Ida | City, country: Molde, Norway"
    )
    assert lines_of("a,b\tx,c\nd,e,f\tg\n", "a.tsv")[-1] == "a,b: d,e,f | x,c: g"
    assert lines_of("Name,City\nIda,Molde\n", "a.tsv")[-1] == "Name: Ida | City: Molde"
    assert parse("a.tab", b"a\tb\nc\td").media_type == "text/tab-separated-values"


def test_one_column_is_no_table_of_its_commas():
    assert lines_of("Name\nOsen, Ida\nBrun, Kai\nKiel\nMolde\n")[1:] == ["Osen, Ida", "Brun, Kai", "Kiel", "Molde"]


HEADERS = {
    "repeated": ("Name,Value,Value\nAda,1,2\nBo,3,4\n", "Name: Bo | Value: 3 | Value: 4"),
    "word that is also a value": ("Name,Kind,N\nKind,x,1\nAda,Kind,2\n", "Name: Ada | Kind: Kind | N: 2"),
    "numbers": ("Shop,1,2,3\nOslo,7,9,8\nKiel,5,5,1\n", "Shop: Kiel | 1: 5 | 2: 5 | 3: 1"),
    "numbers and a total": (",1,2,3,Total\nOslo,7,9,8,24\nKiel,5,5,1,11\n", "Kiel | 1: 5 | 2: 5 | 3: 1 | Total: 11"),
    "below titles": ("Report,,\n,,\nName,Value,Value\nAda,1,2\nBo,3,4\n", "Name: Bo | Value: 3 | Value: 4"),
    "numbers in rows": ("Oslo,1,2,3\nKiel,4,5,6\n", "Kiel | 4 | 5 | 6"),
    "codes": ("AB-12,Ida\nAB-13,Kai\nAC-14,Bo\n", "AC-14 | Bo"),
    "words and numbers": ("Ida,9\nKai,8\nBo,7\n", "Bo | 7"),
}


def test_a_header_is_known_by_the_values_below_it(subtests: pytest.Subtests):
    for kind, (source, last) in HEADERS.items():
        with subtests.test(kind):
            assert lines_of(source)[-1] == last


def test_a_quote_that_is_never_closed_is_a_character():
    source = "Part;Size;N\n" + "".join(f'P{n};"{n} in;{n}\n' for n in range(2_001))
    assert lines_of(source)[-1] == 'Part: P2000 | Size: "2000 in | N: 2000'


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.tsv", "\t")])
def test_a_quote_in_the_last_column_that_is_never_closed_is_a_character(name: str, delimiter: str):
    rows = [["Part", "Size"], *([f"P{n}", f'"{n} in' if n == 2 else f"{n} cm"] for n in range(9))]
    assert lines_of("".join(f"{delimiter.join(row)}\n" for row in rows), name)[3:5] == [
        'Part: P2 | Size: "2 in', "Part: P3 | Size: 3 cm",
    ]  # fmt: skip


def test_a_cell_beyond_the_limit_is_refused():
    limit = csv.field_size_limit(100)
    try:
        with pytest.raises(TooLarge, match="a cell holds more"):
            parse("a.csv", b"a,b\n" + b"x" * 200 + b",y\n")
    finally:
        csv.field_size_limit(limit)


@pytest.mark.parametrize(
    "piece", ['"a,b\n', "'a','b\n", "a\\,b;c\n", "a,b;c\td|e^f\n", '"', "'", '\\"', ",", "\n,", "1,2,3\n"]
)
def test_dialects_are_told_in_linear_time(piece: str):
    def source(size: int) -> bytes:
        return b"Name,City\n" + piece.encode() * size

    assert_linear(partial(read_or_refuse, "a.csv"), source, 500)
