"""RTF: notes, headers, forms, hidden and struck words, symbols and tables."""

import pytest

from ingest.parse import parse
from ingest.parse.parsed import LeftOut
from ragkv.errors import Rejected

FONTS = (
    rb"{\fonttbl{\f0 Arial;}{\f1\fnil\fcharset2 Wingdings;}{\f2\fnil\fcharset204 Times;}{\f3\ftech\fcharset2 Symbol;}}"
)


def rtf(source: bytes) -> bytes:
    return rb"{\rtf1\ansi\ansicpg1252\deff0" + FONTS + rb"\f0 " + source + b"}"


def text_of(source: bytes) -> str:
    return parse("a.rtf", rtf(source)).text


def test_notes_stand_apart_with_their_numbers(subtests: pytest.Subtests):
    notes = {
        "Word": rb"It opened.{\super\chftn {\footnote\pard\plain{\super\chftn} On 14 May\par of 1931.}} It is.",
        "others": rb"It opened.{\super\chftn}{\footnote\pard\plain{\super\chftn} On 14 May\par of 1931.} It is.",
        "LibreOffice": rb"It opened.{\super\chftn{\*\footnote\chftn\pard\plain {\super\chftn} On 14 May\par of 1931.}} It is.",
        "endnote": rb"It opened.{\cs1\super\chftn}{\footnote\ftnalt\pard\plain On 14 May of 1931.}{ It is.}",
    }
    for name, source in notes.items():
        with subtests.test(name):
            assert text_of(source + rb"\par") == "It opened.[1] It is.\n\n1. On 14 May of 1931."
    assert text_of(rb"1931{\footnote\pard b.}, 1932{\footnote\pard c.}\par") == "1931[1], 1932[2]\n\n1. b.\n\n2. c."


def test_headers_and_footers_are_read_once_at_the_end():
    page = rb"{\footerf\pard - {\field{\*\fldinst PAGE}{\fldrslt 7}} -\par Page \chpgn\par}{\footer\pard Sender: Osen, {\i Molde}\par}"
    twice = rb"{\headerl\pard HK-2093-77\par}{\headerr\pard HK-2093-77\par Notice\par}"
    assert text_of(twice + page + rb"\pard\headery720 Notice\par It ends.\par") == (
        "Notice\nIt ends.\n\nHK-2093-77\nSender: Osen, Molde"
    )
    assert text_of(rb"{\header\pard Batch 44598-55\par}\pard\par") == "Batch 44598-55"


def test_struck_words_have_marks(subtests: pytest.Subtests):
    for source in (rb"{\strike 300} 450", rb"\strike 300\strike0  450", rb"{\striked1 30}{\b\striked1 0} 450"):
        with subtests.test(source):
            assert text_of(rb"It is " + source + rb".\par Not so.") == "It is ~~300~~ 450.\nNot so."


def test_hidden_and_deleted_words_are_left_out():
    source = rb"The price.{\v  secret words}{\deleted  old} \v secret\plain  It holds."
    parsed = parse("a.rtf", rtf(source))
    assert (parsed.text, parsed.left_out) == ("The price.  It holds.", LeftOut(hidden_words=3))
    kept = parse("a.rtf", rtf(source), keeps_hidden=True)
    assert kept.text == "The price. secret words secret It holds."


FORM = rb"{\field{\*\fldinst %b {\*\formfield{%b}}}{\fldrslt %b}}"


def test_forms_show_ticks_and_chosen_values(subtests: pytest.Subtests):
    forms = {
        "[x] Yes": FORM % (b"FORMCHECKBOX", rb"\fftype1\ffres1\ffhps20\ffdefres0", b""),
        "[ ] Yes": FORM % (b"FORMCHECKBOX", rb"\fftype1\ffres0\ffdefres1", b""),
        "[x]  Yes": FORM % (b"FORMCHECKBOX", rb"\fftype1\ffres25\ffdefres1", b""),
        "Blue Yes": FORM % (b"FORMDROPDOWN", rb"\fftype2\ffres1{\*\ffl Red}{\*\ffl Blue}", b""),
        "Ann Yes": FORM % (b"FORMTEXT", rb"\fftype0{\*\ffdeftext Name}", b"Ann"),
        "[x] Yes ": rb"{\f1\'fe}",
        "[ ] Yes ": rb"{\f1 \u-3928\'a8}",
        "\u4efe Yes": rb"{\f1 \u20222?}",
    }
    for shown, source in forms.items():
        with subtests.test(source):
            assert " ".join(text_of(rb"Answer: " + source + b" Yes").split()) == f"Answer: {' '.join(shown.split())}"


def test_numbers_and_bullets_of_lists_are_those_that_are_shown():
    source = rb"{\listtext\pard\plain 2.2(b)\tab}Risk passes\par{\pntext\f3\'b7\tab}later\par"
    assert text_of(source) == "2.2(b)\tRisk passes\n•\tlater"


def test_boxes_and_descriptions_of_pictures_follow_their_line():
    box = (
        rb"{\shp{\*\shpinst{\sp{\sn wzDescription}{\sv A crane at work}}{\shptxt In the box\par}}{\shprslt In the box}}"
    )
    picture = rb"{\*\shppict{\pict{\*\picprop{\sp{\sn wzDescription}{\sv A crane at work}}}\pngblip 0102}}{\nonshppict{\pict 01}}"
    assert text_of(rb"Before " + box + rb"after." + picture + rb"\par End.") == (
        "Before after.\n[Picture: A crane at work]\nIn the box\n\nEnd."
    )


def test_fonts_have_their_own_code_pages():
    assert text_of(rb"Caf\'e9 {\f2\'cf\'f0\'e8\'e2\'e5\'f2} \uc2\u1071\'df?!") == "Café Привет Я!"


@pytest.mark.parametrize(
    ("number", "charset", "source", "text"),
    [
        (932, 128, rb"\'83e\'83X\'83g \'95\\", "テスト 表"),
        (932, 128, b"\\'83\r\ne\\'83\\{\\'94\\}\\'82\n\\'77", "テボ媒Ｘ"),
        (950, 136, rb"\'a6@\'a5\\x", "共功x"),
        (949, 129, rb"\'88A.\'88\par A", "뉯.\ufffd\nA"),
        (932, 128, rb"\'95 A\f1\'95A", "\ufffd A•A"),
    ],
)
def test_the_second_byte_of_a_character_may_be_a_letter_or_a_sign(number: int, charset: int, source: bytes, text: str):
    fonts = rb"{\fonttbl{\f0\fcharset%d X;}{\f1\fcharset0 Y;}}" % charset
    assert parse("a.rtf", rb"{\rtf1\ansi\ansicpg%d\uc0%b\f0 %b}" % (number, fonts, source)).text == text


def row(*cells: tuple[bytes, int, bytes]) -> bytes:
    """Cells as their words, right edge and what else is said of them."""
    edges = b"".join(rb"%b\cellx%d" % (more, right) for _, right, more in cells)
    return rb"\trowd%b\pard\intbl %b\row " % (edges, b"".join(rb"%b\cell " % words for words, _, _ in cells))


def test_merged_cells_keep_the_columns_of_a_table():
    table = (
        row((b"Region", 1000, b""), (b"Product", 2000, b""), (b"2023", 3000, b""), (b"2024", 4000, b""))
        + row((b"North", 1000, rb"\clvmgf"), (b"Pumps", 2010, b""), (b"11", 3000, b""), (b"13", 4000, b""))
        + row((b"", 1000, rb"\clvmrg"), (b"Valves", 2000, b""), (b"both 21", 4000, b""))
        + row((b"South", 1000, b""), (b"all", 3000, b""), (rb"line\par more", 4000, b""))
    )
    assert text_of(table + rb"\pard End.\par") == (
        "Region | Product | 2023 | 2024\n\nRegion: North | Product: Pumps | 2023: 11 | 2024: 13\n\n"
        "Region: North | Product: Valves | 2023: both 21\n\nRegion: South | Product: all | 2024: line more\n\nEnd."
    )


def test_labels_above_each_other_are_joined():
    table = (
        row((b"Region", 1000, b""), (b"2025", 3000, b""), (b"2026", 5000, b""))
        + row(
            (b"", 1000, rb"\clvmrg"), *((word, 2000 + 1000 * n, b"") for n, word in enumerate([b"Plan", b"Sales"] * 2))
        )
        + row((b"North", 1000, b""), *((b"%d" % n, 1000 + 1000 * n, b"") for n in range(1, 5)))
    )
    labelled = "Region: North | 2025 Plan: 1 | 2025 Sales: 2 | 2026 Plan: 3 | 2026 Sales: 4"
    assert labelled in text_of(table)


def test_data_of_pictures_is_skipped():
    assert text_of(rb"a{\pict\wmetafile8\bin5 {}}\1} b\bin-3 c{\*\unknown secret} d") == "a bc d"


def test_an_unknown_code_page_is_refused():
    with pytest.raises(Rejected, match="unknown code page"):
        parse("a.rtf", rb"{\rtf1\ansi\ansicpg999 words}")
