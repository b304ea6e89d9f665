"""Numbers, dates and durations as spreadsheets show them."""

import random

import pytest

from ingest.parse.number_format import BUILT_IN, NumberFormat

SCALES = '[>=1000000]0.0,,"M";[>=1000]0.0,"K";0'
PHONE = "[<=9999999]###-####;(###) ###-####"
ACCOUNTING = '_(* #,##0.00_);_(* \\(#,##0.00\\);_(* "-"??_);_(@_)'
SHOWN = {
    "percent": [("0.0%", 0.075, "7.5%"), ("0%", 0.653035934, "65%"), ("0.00\\%", 12.5, "12.50%")],
    "leading zeros": [("00000", 1234, "01234"), ('"AC-"0000', 42, "AC-0042"), ("000-00-0000", 12345678, "012-34-5678")],
    "thousands": [("#,##0", 1234567, "1,234,567"), ("#,##0.00", -1234.5, "-1,234.50"), ("#,##0", 0, "0")],
    "spaces between thousands": [("#\\ ##0.00", 234567.891, "234 567.89")],
    "scale": [('0.0,,"M"', 12500000, "12.5M"), ("#,##0,", 1000000, "1,000"), (SCALES, 4321, "4.3K"), (SCALES, -12, "-12")],
    "units": [('0.0" °C"', 21.5, "21.5 °C"), ('General" kg"', -2.5, "-2.5 kg"), ('"Q"0', 3, "Q3"), ("0.0 kg", 3, "3.0 kg")],
    "currencies": [
        ('"$"#,##0.00', 1234.5, "$1,234.50"),
        ("[$£-809]#,##0", 999999.5, "£1,000,000"),
        ("#,##0.00 [$€-407]", -1234.5, "-1,234.50 €"),
        ("[$CHF-807] #,##0.00", 12, "CHF 12.00"),
        (ACCOUNTING, -5.5, "(5.50)"),
        (ACCOUNTING, 0, "-"),
    ],
    "signs": [
        ("#,##0;(#,##0)", -250, "(250)"),
        ("0.00;[Red]-0.00", -5.5, "-5.50"),
        ("[<1]0.0%;0.0", -0.5, "-50.0%"),
        ('[=0]"nil";0', -4, "-4"),
    ],
    "sections": [('"yes";;"no"', 1, "yes"), ('"yes";;"no"', 0, "no"), ('"yes";;"no"', -1, ""), (";;;", 5, "")],
    "conditions": [(PHONE, 5551234567, "(555) 123-4567"), (PHONE, 5551234, "555-1234"), ("[=1]0;0.0", 1, "1")],
    "literals between digits": [('"+"00 00 00 00 00', 4712345678, "+47 12 34 56 78"), ("0\\.0", 123, "12.3")],
    "optional digits": [("#.##", 0.5, ".5"), ("0.##", 8.9, "8.9"), ("#,###", 0, ""), (".00", 12.5, "12.50"), ("?0.0?", 1.5, "1.5")],
    "halves": [("0", 2.5, "3"), ("0.00", 1.005, "1.01"), ("0.0", 0.25, "0.3")],
    "powers": [("0.00E+00", 12345, "1.23E+04"), ("##0.0E+0", 12345, "12.3E+3"), ("0.00E+00", 0.000999999, "1.00E-03")],
    "fractions": [
        ("# ?/?", 0.5, "1/2"),
        ("# ?/?", 123.456, "123 1/2"),
        ("# ??/??", 123.456, "123 26/57"),
        ("# ???/???", 123.456, "123 57/125"),
        ("# ?/8", 1.25, "1 2/8"),
        ("?/?", 1.5, "3/2"),
    ],
    "dates": [
        ("dd.mm.yyyy hh:mm", 46096.58680555555, "15.03.2026 14:05"),
        ("mmm yyyy", 46082, "Mar 2026"),
        ("[$-409]d\\-mmm\\-yy;@", 45292, "1-Jan-24"),
        ("dddd, d mmmm yyyy", 45292, "Monday, 1 January 2024"),
        ('yyyy"年"m"月"d"日"', 45292, "2024年1月1日"),
        ("[$-F800]dddd\\,\\ mmmm\\ dd", 45292, "2024-01-01"),
        (BUILT_IN[14], 45292.25, "2024-01-01"),
        ("yyyy-mm-dd", 60, "1900-02-29"),
        ("yyyy-mm-dd", 61, "1900-03-01"),
    ],
    "times": [
        ("hh:mm", 0.3541666666666667, "08:30"),
        ("h:mm AM/PM", 0.75, "6:00 PM"),
        ("mm:ss.0", 0.0000145833, "00:01.3"),
        ("yyyy/m/d h:m:s", 45292.999999, "2024/1/2 0:0:0"),
    ],
    "durations": [("[h]:mm", 1.5625, "37:30"), ("[mm]:ss", 0.5, "720:00"), ("[h]:mm:ss", -0.5, "-12:00:00")],
    "no dates": [("yyyy-mm-dd", -1, "-1"), ("yyyy-mm-dd", 1e9, "1000000000")],
    "no format": [("General", 0.1 + 0.2, "0.3"), ("", 2.5, "2.5"), ("@", 12, "12"), ("0" * 300, 2, "2")],
}  # fmt: skip


def test_a_number_is_shown_in_its_format(subtests: pytest.Subtests):
    for name, examples in SHOWN.items():
        for code, value, shown in examples:
            with subtests.test(name, code=code, value=value):
                assert NumberFormat(code).number(value) == shown


def test_days_may_be_counted_from_1904():
    assert NumberFormat("yyyy-mm-dd", is_1904=True).number(0) == "1904-01-01"
    assert NumberFormat("d mmm yyyy", is_1904=True).number(43830) == "1 Jan 2024"


@pytest.mark.parametrize(
    ("code", "shown"), [("0.00", "a"), ('"ID "@', "ID a"), (ACCOUNTING, "a"), (";;;", ""), ('0;0;0;"Item "@', "Item a")]
)
def test_texts_have_a_section_too(code: str, shown: str):
    assert NumberFormat(code).text("a") == shown


def test_any_code_shows_any_number():
    signs = random.Random(3)
    for _ in range(3_000):
        format_ = NumberFormat("".join(signs.choices('0#?.,%E+-/ ;"\\_*[]>=<1hmsydeagAP@$', k=signs.randint(0, 14))))
        for value in (0, 1, -1.5, 45292.7, 1e308, -1e-300, 123456789.123):
            assert isinstance(format_.number(value), str)
    assert len(NumberFormat("%" * 250 + "0").number(1e308)) < 1_500
