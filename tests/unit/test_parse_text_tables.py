"""Tables drawn with characters in Markdown, notebooks, reStructuredText, Org and plain text."""

import json
from functools import partial

import pytest

from ingest.parse import parse
from tests.support.growth import assert_linear, read_or_refuse

ROWS = [["Alm", "Cefa", "26"], ["Bach", "Aune", "30"], ["Tal", "Brok", "9"]]
HEADER = ["Site", "Inspector", "Depth m"]
LABELLED = [
    "Site | Inspector | Depth m",
    "Site: Alm | Inspector: Cefa | Depth m: 26",
    "Site: Bach | Inspector: Aune | Depth m: 30",
    "Site: Tal | Inspector: Brok | Depth m: 9",
]


def piped(rule: str, ends: str = "|") -> str:
    lines = [f"{ends}{'|'.join(f' {cell} ' for cell in row)}{ends}" for row in [HEADER, *ROWS]]
    return "\n".join([lines[0], f"{ends}{rule}{ends}", *lines[1:]])


def spaced(*rules: str, before: bool = False) -> str:
    """Columns of ten characters; `rules` are drawn in them below the header and, if `before`, around the table."""
    lines = ["".join(cell.ljust(12) for cell in row).rstrip() for row in [HEADER, *ROWS]]
    drawn = ["  ".join(rule * 10 for _ in HEADER) for rule in rules]
    return "\n".join([*drawn, lines[0], *drawn, *lines[1:], *drawn] if before else [lines[0], *drawn, *lines[1:]])


def grid(header_rule: str, row_rule: str = "-") -> str:
    def ruled(sign: str) -> str:
        return "+" + "+".join(sign * 12 for _ in HEADER) + "+\n"

    lines = ["|" + "|".join(f" {cell}".ljust(12) for cell in row) + "|\n" for row in [HEADER, *ROWS]]
    between = ruled(row_rule) if row_rule else ""
    return f"{ruled('-')}{lines[0]}{ruled(header_rule)}{between.join(lines[1:])}{ruled('-')}"


RIGHT_ALIGNED = "\n".join("".join(cell.rjust(12) for cell in row) for row in [HEADER, *ROWS])
BOX = grid("=", "").replace("+", "┼").replace("-", "─").replace("=", "═").replace("|", "│")
TABLES = {
    "pipes": ("a.md", piped("---|:--|--:")),
    "pipes without ends": ("a.md", piped("---|---|---", "")),
    "pipes in a list": ("a.md", "- x\n\n" + "\n".join(f"  {line}" for line in piped("---|---|---").split("\n"))),
    "pipes in a quotation": ("a.md", "\n".join(f"> {line}" for line in piped("---|---|---").split("\n"))),
    "grid in Markdown": ("a.md", grid("=")),
    "notebook": (
        "a.ipynb",
        json.dumps({"cells": [{"cell_type": "markdown", "source": piped("---|---|---")}]}),
    ),
    "simple": ("a.rst", spaced("=", before=True)),
    "grid": ("a.rst", grid("=")),
    "Org": ("a.org", piped("---+---+---")),
    "Org with alignment": ("a.org", piped("---+---+---").replace("| Alm", "| <l> | | <r10> |\n| Alm")),
    "pipes in text": ("a.txt", piped("---|---|---")),
    "psql": ("a.txt", piped("---+---+---", "")),
    "mysql": ("a.txt", grid("-", "")),
    "box": ("a.txt", BOX),
    "aligned": ("a.txt", spaced()),
    "aligned at the right": ("a.txt", f"Wells\n\n{RIGHT_ALIGNED}"),
    "aligned below a rule": ("a.txt", spaced("-").replace("26", "x")),
}


def test_each_row_carries_the_labels_of_its_header(subtests: pytest.Subtests):
    for kind, (name, source) in TABLES.items():
        with subtests.test(kind):
            labelled = [line.replace("26", "x") for line in LABELLED] if "rule" in kind else LABELLED
            blocks = parse(name, source.encode()).text.split("\n\n")
            assert blocks[-4:] == labelled


def test_the_text_around_a_table_stays_and_headings_stand_where_they_stood(subtests: pytest.Subtests):
    sources = {
        "a.md": f"# One\n\n`code`\n{piped('---|---|---')}\n\n## Two\n    x\n\n{grid('=')}\nend",
        "a.rst": f"One\n===\n\n`code`\n\n{spaced('=', before=True)}\n\nTwo\n---\n    x\n\n{grid('=')}\nend",
        "a.org": f"* One\n\n`code`\n{piped('---+---+---')}\n\n** Two\n    x\n\n{grid('=')}\nend",
        "a.txt": f"One\n===\n\n`code`\n\n{spaced()}\n\nTwo\n---\n    x\n\n{grid('=')}\nend",
    }
    for name, source in sources.items():
        with subtests.test(name):
            parsed = parse(name, source.encode())
            assert [s.title for s in parsed.sections] == ["One", "Two"]
            bodies = [parsed.text[s.start : s.body].strip() for s in parsed.sections]
            assert parsed.text.split("\n\n") == [
                bodies[0], "`code`", *LABELLED, f"{bodies[1]}\n    x", *LABELLED, "end",
            ]  # fmt: skip


def test_what_only_looks_like_a_table_stays_as_it_is(subtests: pytest.Subtests):
    sources = {
        "fence": ("a.md", f"```\n{piped('---|---|---')}\n```"),
        "source code": ("a.txt", "int a;        // first\nint bb;       // second\nchar ccc;     // third"),
        "assignments": ("a.txt", "'AB':    True,\n'CDE':   3,\n'F':     4,"),
        "services": ("a.txt", "tcpmux     1/tcp   # port\necho       7/tcp   x\nfoo        9/udp   y"),
        "words in columns": ("a.txt", "salt      pepper\nsugar     flour\nrice      oats"),
        "spaced prose": ("a.txt", "This is it.  It has double\nspaces in  all of its\nlines.  Yes  9 of them."),
        "a box": ("a.txt", "+-------+\n| Begin |\n+-------+\n| End   |\n+-------+"),
        "a row of boxes": ("a.txt", "+---+---+\n| a | b |\n+---+---+"),
        "or": ("a.txt", "a | b\nc | d"),
    }
    for kind, (name, source) in sources.items():
        with subtests.test(kind):
            assert parse(name, source.encode()).text == source


def test_cells_of_a_grid_may_span_and_have_several_lines():
    source = """\
+--------+--------+------+
| Site   | Salt          |
|        +--------+------+
|        | Spring | Fall |
+========+========+======+
| Alm    | 1      | 2    |
| Upper  |        |      |
+--------+--------+------+
| Bach   | closed        |
+        +--------+------+
|        | 3      | 4    |
+--------+--------+------+
"""
    assert parse("a.rst", source.encode()).text.split("\n\n")[1:] == [
        "Site: Alm Upper | Salt Spring: 1 | Salt Fall: 2",
        "Site: Bach | Salt Spring: closed",
        "Site: Bach | Salt Spring: 3 | Salt Fall: 4",
    ]


def test_a_line_without_a_first_cell_goes_on_in_a_simple_table_and_wide_letters_take_two_columns():
    source = "======  ====\n名前    年齢\n======  ====\n太郎    12\n        歳\n花子    9\n======  ====\n"
    assert parse("a.rst", source.encode()).text.split("\n\n")[1:] == [
        "名前: 太郎 | 年齢: 12 歳",
        "名前: 花子 | 年齢: 9",
    ]


def test_a_marked_header_holds_whatever_its_words_are():
    """Labels that repeat, are numbers, or hold a sign that Markdown reads as a heading at a line's beginning."""
    parsed = parse("a.md", b"| # | 10 | 10 |\n|---|---|---|\n| x \\| y | 10 | 2 |\n")
    assert parsed.text.split("\n\n") == ["# | 10 | 10", "#: x | y | 10: 10 | 10: 2"]
    assert parsed.sections == ()


def test_results_of_a_notebook_that_are_tables_are_read_with_labels():
    html = "<style>td {}</style><table><tr><th></th><th>depth</th><th>salt</th></tr><tr><th>Alm</th><td>26</td><td>9</td></tr></table>"
    outputs = [{"data": {"text/html": [html], "text/plain": ["     depth\n", "Alm     26"]}}]
    body = {"cells": [{"cell_type": "code", "source": "wells", "outputs": outputs}]}
    assert parse("a.ipynb", json.dumps(body).encode()).text.endswith(
        "```\ndepth | salt\n\nAlm | depth: 26 | salt: 9\n```"
    )


def test_unfinished_tables_take_linear_time(subtests: pytest.Subtests):
    lines = {
        "a.md": ("|a|b|\n|-|-|\n", "+-+-+\n|a|b|\n", "+-+-+\n\n", "|a|\n|-|\n\n"),
        "a.rst": ("== ==\na  b\n", "== ==\n", "== ==\n\n", "+-+-+\n", "+-+-+\n| +-+\n"),
        "a.org": ("|a\n", "|-+-|\n", "|\n\n"),
        "a.txt": ("a  b\n", "a  1\n\n", "a|b\n-+-\n", "|-|-|\n", "+-+-+\n|a\n", "--  --\n"),
    }
    for name, line in ((name, line) for name, of_format in lines.items() for line in of_format):
        with subtests.test(name=name, line=line):
            assert_linear(partial(read_or_refuse, name), lambda n, line=line: b"words\n\n" + line.encode() * n, 400)


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ("| `int | None` | optional |", "Type: `int | None` | Meaning: optional"),
        ("`a || b` | either", "Type: `a || b` | Meaning: either"),
        (r"| too | many | cells \| here |", "Type: too | Meaning: many | cells | here"),
        ("| ` | ` |", "Type: ` | Meaning: `"),
    ],
)
def test_a_markdown_row_of_more_cells_than_its_header_loses_none(row: str, line: str):
    """Pipes in code part no cells there, as in documentation of types."""
    assert line in parse("a.md", f"| Type | Meaning |\n|---|---|\n{row}\n".encode()).text
