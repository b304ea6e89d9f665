"""HTML: what is kept, what is dropped, and what cannot hurt."""

import time

import pytest

from ingest.parse import Parsed, parse
from ragkv.errors import Rejected


def page(body: str, head: str = "") -> Parsed:
    return parse("page.html", f"<!DOCTYPE html><html><head>{head}</head><body>{body}</body></html>".encode())


def test_headings_become_sections_at_their_place_in_the_text() -> None:
    parsed = page("<h1>Duck</h1><p>Intro.</p><h2>Food <i>and</i> drink</h2><p>Grass.</p>")
    assert parsed.text == "Duck\n\nIntro.\n\nFood and drink\n\nGrass."
    assert [(s.title, s.level, parsed.text[s.start : s.body]) for s in parsed.sections] == [
        ("Duck", 1, "Duck"),
        ("Food and drink", 2, "Food and drink"),
    ]


def test_the_title_leaves_out_the_name_of_the_site() -> None:
    assert page("<h1>Duck</h1>x", "<title>Duck - Some Encyclopedia</title>").title == "Duck"
    assert page("<h1>Menu</h1>x", "<title>Duck</title>").title == "Duck"
    assert page("<h1>Duck</h1>x").title == "Duck"


def test_scripts_styles_navigation_and_hidden_parts_are_dropped() -> None:
    parsed = page(
        "<nav>menu</nav><script>run()</script><style>p{}</style><template>t</template><p hidden>h</p>"
        "<p>seen<span style='color:red; display: none'>not</span></p><div role=navigation>menu</div>"
        "<datalist><option>choice</datalist>"
    )
    assert parsed.text == "seen"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<header>Intranet</header><main>Leave</main><aside>News</aside><footer>Imprint</footer>", "Leave"),
        ("<div role=banner>Intranet</div><div role=main>Leave</div><div role=contentinfo>Imprint</div>", "Leave"),
        ("<main><header>By Ada</header>Leave<footer>Notes</footer></main>", "By Ada\nLeave\nNotes"),
        ("<article><header>By Ada</header></article><main>Leave</main>", "By Ada\nLeave"),
        ("<header><h1>Rules</h1></header><main>Leave</main>", "Rules\n\nLeave"),
        ("<header><main>Leave</main></header>", "Leave"),
        ("<header>Intranet</header><div>Leave</div><footer>Imprint</footer>", "Intranet\nLeave\nImprint"),
    ],
)
def test_what_stands_around_the_main_part_is_left_out(source: str, text: str) -> None:
    assert page(source).text == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<ruby>漢<rt>かん</rt>字<rt>じ</rt></ruby>を読む", "漢字を読む"),
        ("<ruby>漢字<rp>(</rp><rt>かん<b>じ</b></rt><rp>)</rp></ruby>を<ruby>読<rt>よ</ruby>む", "漢字を読む"),
        ("<rt>words</rt> alone", "words alone"),
    ],
)
def test_readings_above_words_are_left_out(source: str, text: str) -> None:
    assert page(f"<p>{source}</p>").text == text


OFF_SCREEN, PRICE = "position:absolute;left:-10000px", "<b aria-hidden='true'>$<i>19</i>99</b>"
FORMULA = "<math><msup><mi>x</mi><mn>2</mn></msup></math>"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (f"<span style='{OFF_SCREEN}'>$19.99</span>{PRICE}", "It is $19.99 now."),
        (f"{PRICE} <span style='{OFF_SCREEN}'>$19.99</span>", "It is $19.99 now."),
        (f"<span style='{OFF_SCREEN}'>$19.99 or less</span>{PRICE}", "It is now."),
        (f"<span style='{OFF_SCREEN}'>$19.99</span>{PRICE.replace('>', ' style=display:none>', 1)}", "It is now."),
        (f"$19.99 {PRICE}", "It is $19.99 now."),
        (f"<span style='display:none'>{FORMULA}</span><img alt='{{x^2}}' aria-hidden=true>", "It is x^2 now."),
        (f"<i aria-hidden=true></i><span style='{OFF_SCREEN}'>{FORMULA}</span>", "It is x^2 now."),
    ],
)
def test_what_is_for_the_eye_and_for_screen_readers_is_read_once(source: str, text: str) -> None:
    assert " ".join(page(f"<p>It is {source} now.</p>").text.split()) == text


@pytest.mark.parametrize(
    "source",
    [
        "<pre><span class='linenos'>1</span>let a;\n<span class='linenos'>2</span>let b;\n</pre>",
        "<table><tr><td class='linenos'><div class='linenodiv'><pre>1\n2</pre></div></td><td><pre>let a;\nlet b;</pre></td></tr></table>",
        "<table><tr><td class='rouge-gutter gl'><pre class='lineno'>1\n2\n</pre></td><td><pre>let a;\nlet b;</pre></td></tr></table>",
        "<pre><span><span class='ln'>1</span>let a;</span>\n<span><span class='ln'>2</span>let b;</span></pre>",
        "<div class='line'><span class='lineno'>    1</span>let a;</div><div class='line'><span class='lineno'>    2</span>let b;</div>",
    ],
)  # fmt: skip
def test_numbers_of_lines_of_code_are_left_out(source: str) -> None:
    assert page(source).text == "let a;\nlet b;"


def test_words_and_cells_like_numbers_of_lines_stay() -> None:
    assert page("<p class=lineno>Line 1</p><p class=online>2</p><p class=lineno>").text == "Line 1\n\n2"


def test_links_that_edit_a_section_of_a_wiki_are_left_out() -> None:
    link = "<span class='mw-editsection'>[<a href=e>edit</a>]</span>"
    parsed = page(f"<h2>Use{link}</h2><div><h3>Care</h3>{link}</div><p>Words.")
    assert [section.title for section in parsed.sections] == ["Use", "Care"]
    assert "edit" not in parsed.text


@pytest.mark.parametrize("sign", ["¶", "\uf0c1"])
def test_signs_that_only_link_within_the_page_are_left_out(sign: str) -> None:
    parsed = page(f"<h2>Setup<a href='#setup'>{sign}</a></h2><p>As <a href='#c'>C#</a> says. <a href='#up'>↩</a></p>")
    assert (parsed.sections[0].title, parsed.text) == ("Setup", "Setup\n\nAs C# says.")


def test_a_table_row_is_a_line_with_its_cells_apart() -> None:
    parsed = page("<table><tr><th>Name</th><th>Year</th></tr><tr><td><p>Ed<br>Wood</p></td><td>1994</td></tr></table>")
    assert parsed.text == "Name | Year\n\nName: Ed Wood | Year: 1994"


def test_labels_stand_before_the_cells_of_their_columns_whatever_spans_them() -> None:
    head = "<thead><tr><th>Place</th><th>Bird</th><th colspan=2>Seen</th><th>By</th></tr></thead>"
    rows = "<tr><th rowspan=2>Oslo</th><td>Duck</td><td>7</td><td>8</td><td>Ann</td></tr><tr><td>Goose</td><td>1</td><td></td><td>Bob</td></tr>"
    assert page(f"<table>{head}<tbody>{rows}</tbody></table>").text.split("\n\n") == [
        "Place | Bird | Seen | By",
        "Place: Oslo | Bird: Duck | Seen: 7 | 8 | By: Ann",
        "Place: Oslo | Bird: Goose | Seen: 1 | By: Bob",
    ]


def test_a_table_without_marked_headers_has_some_if_it_is_even_and_wide() -> None:
    def table(*rows: str) -> str:
        cells = ("".join(f"<td>{cell}</td>" for cell in row.split(",")) for row in rows)
        return page(f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>").text

    assert table("Name,Born,City", "Ann,1950,Oslo", "Bob,1960,Rome").endswith("Name: Bob | Born: 1960 | City: Rome")
    assert table("Name,Born,City", "Ann,1950,Oslo") == "Name | Born | City\nAnn | 1950 | Oslo"
    assert table("Born,Oslo", "Died,Rome", "Job,Actor") == "Born | Oslo\nDied | Rome\nJob | Actor"
    assert table("Name,Born,City", "Ann,1950", "Bob,1960,Rome") == "Name | Born | City\nAnn | 1950\nBob | 1960 | Rome"


@pytest.mark.parametrize(("chars", "text"), [(2_000, "x | {words}"), (2_001, "x\n{words}")])
def test_a_cell_of_long_text_is_layout_and_a_shorter_one_is_not(chars: int, text: str) -> None:
    words = ("word " * chars)[: chars - 1] + "."
    assert page(f"<table><tr><td>x<td>{words}</table>").text == text.format(words=words)


def test_rows_of_layout_are_counted_by_the_cells_that_span_them() -> None:
    head = "<tr><th>Name<th>Min<th>Max<tr><td rowspan=2>alpha<td>1<td>2"
    text = page(f"<table>{head}<tr><td><pre>x</pre><td>4<tr><td>beta<td>5<td>6</table>").text
    assert text.split("\n\n")[1:] == ["Name: alpha | Min: 1 | Max: 2", "x\n4", "Name: beta | Min: 5 | Max: 6"]
    short = "<tr><th>Name<th>Min<th>Max<tr><td>alpha<td>1<td rowspan=2>2<tr><td>beta<tr><td>gamma<td>5<td>6"
    assert page(f"<table>{short}</table>").text.endswith("Name: beta | Max: 2\n\nName: gamma | Min: 5 | Max: 6")


def test_words_that_are_repeated_in_spanned_rows_are_cut_like_labels() -> None:
    head = f"<tr><th>Note<th>Year<tr><td rowspan=2>{'words ' * 30}<td>1<tr><td>2"
    repeated = page(f"<table>{head}</table>").text.split("\n\n")[-1]
    assert (
        repeated.startswith("Note: words")
        and repeated.endswith("…: 2".replace(":", " | Year:"))
        and len(repeated) < 100
    )


def test_a_label_joins_the_headers_that_stand_above_one_another() -> None:
    years = "<tr><th rowspan=2>City<th colspan=2>2023<th colspan=2>2024<tr><th>Plan<th>Actual<th>Plan<th>Actual"
    text = page(f"<table><tr><th colspan=5>Sales{years}<tr><td>Oslo<td>1<td>2<td>3<td>4</table>").text
    assert text == (
        "Sales\nCity | 2023 | 2024\nCity | Plan | Actual | Plan | Actual\n\n"
        "City: Oslo | 2023 Plan: 1 | 2023 Actual: 2 | 2024 Plan: 3 | 2024 Actual: 4"
    )
    marked_above = years.replace("<tr><th>Plan<th>Actual<th>Plan<th>Actual", "<tr><td>Plan<td>Actual<td>Plan<td>Actual")
    for head in (marked_above, years.replace("<th", "<td")):
        text = page(f"<table>{head}<tr><td>Oslo<td>1<td>2<td>3<td>4<tr><td>Rome<td>5<td>6<td>7<td>8</table>").text
        assert text.endswith("City: Rome | 2023 Plan: 5 | 2023 Actual: 6 | 2024 Plan: 7 | 2024 Actual: 8")
    later = "<tr><th>City<th>Plan<tr><td>Oslo<td>1<tr><th colspan=2>East<tr><td>Rome<td>2"
    assert page(f"<table>{later}</table>").text.endswith("East\n\nCity: Rome | Plan: 2")


def test_cells_and_rows_in_a_form_are_those_of_their_table() -> None:
    head, form = "<tr><th>Name</th><th>Year</th></tr>", "<form action='/save'>{}</form>".format
    cells = "<td>Ann</td><td>1994</td>"
    for rows in (f"{head}<tr>{form(cells)}</tr>", form(f"{head}<tr>{cells}</tr>"), f"{head}<tr>{form('')}{cells}</tr>"):
        assert page(f"<table>{rows}</table>").text == "Name | Year\n\nName: Ann | Year: 1994"
        assert page(f"<table><tbody>{rows}</tbody></table>").text == "Name | Year\n\nName: Ann | Year: 1994"


def test_words_of_a_row_that_stand_in_no_cell_are_kept() -> None:
    rows = "<tr>one <td>two</td><b>three</b></tr><tr><td>four</td><p>five</p> six<td>seven</td></tr>"
    text = page(f"<table>{rows}<td>eight</td></table><table><td>nine</table>").text
    assert text.split() == ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def test_cells_of_a_layout_table_follow_one_another() -> None:
    parsed = page(
        "<table><tr><td><h2>Left</h2><p>one</p></td><td><table><tr><td>a</td><td>b</td></tr></table></td></tr></table>"
    )
    assert parsed.text.split("\n\n") == ["Left", "one", "a | b"]
    assert [s.title for s in parsed.sections] == ["Left"]


def test_lists_show_their_nesting_and_preformatted_text_its_lines() -> None:
    assert page("<ul><li>a<ol><li>b</li></ol></li></ul>").text == "* a\n     1. b"
    assert "x = 1\n  y" in page("<pre>x = 1\n  y</pre>").text


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("<ol start=14><li>a<li>b</ol>", ["14. a", "15. b"]),
        ("<ol reversed><li>a<li value=7>b<li>c</ol>", ["3. a", "7. b", "6. c"]),
        ("<ol start=' +2 '><li>a<ol start=5><li>b</ol><li>c</ol>", ["2. a", "5. b", "3. c"]),
        ("<ol start=-1><li>a<li>b</ol>", ["-1. a", "0. b"]),
        ("<ol type=a start=26><li>a<li>b<li>c</ol>", ["z. a", "aa. b", "ab. c"]),
        ("<ol type=I reversed start=10><li>a<li type=i>b<li type=1>c</ol>", ["X. a", "ix. b", "8. c"]),
        ("<ol type=I start=3999><li>a<li>b</ol>", ["MMMCMXCIX. a", "4000. b"]),
        ("<ol style='list-style: inside UPPER-latin'><li>a<ol><li>b</ol></ol>", ["A. a", "1. b"]),
        ("<ul style='list-style-type:lower-roman'><li>a<li>b</ul>", ["i. a", "ii. b"]),
        ("<ol style='list-style:none'><li>1.1 a</ol>", ["* 1.1 a"]),
        ("<style>li::before{content:counter(a)'.'}</style><ol style='list-style:none'><li>a</ol>", ["1. a"]),
        ("<style>.c{list-style-type:decimal-leading-zero}</style><ol class=c><li>a</ol>", ["01. a"]),
        ("<style>.c{list-style-type:disc}</style><ol class=c><li>a</ol><ol type=x><li label=y>b</ol>", ["* a", "1. b"]),
        (f"<ol start=x><li value=²>a<li value={'9' * 5_000}>b</ol>", ["1. a", "2. b"]),
        ("<ol><div><li value=²>a</li></div></ol>", ["1. a"]),
    ],
)
def test_items_of_lists_have_the_numbers_that_the_page_gives_them(source: str, lines: list[str]) -> None:
    assert [line.strip() for line in page(source).text.split("\n")] == lines


def test_a_button_that_is_a_whole_title_is_kept_and_others_are_dropped() -> None:
    parsed = page(
        "<h2><button>How long is the <b>warranty</b>?</button></h2><p>Two years.</p>"
        "<dl><dt><button>Where?</button></dt><dd>Here.</dd></dl>"
        "<h2>Prices <button>Edit</button></h2><p>Low. <button>Buy</button></p>"
    )
    assert parsed.text == "How long is the warranty?\n\nTwo years.\n\nWhere?\nHere.\n\nPrices\n\nLow."
    assert [section.title for section in parsed.sections] == ["How long is the warranty?", "Prices"]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("1.5 x 10<sup>6</sup>, 45<sup>1</sup> million", "1.5 x 10^6, 45^1 million"),
        ("<b>10</b><i><sup><u>-3</u></sup></i> 1010<sub>2</sub>", "10^-3 1010_2"),
        ("m<sup>2</sup> 1<sup>st</sup> 45<sup>[1]</sup> CO<sub>2</sub> 7 <sup>1</sup>", "m2 1st 45[1] CO2 7 1"),
        ("10<p><sup>6</sup>", "10\n\n6"),
        ("<table><tr><td>10<sup>6</sup><td>1<td><sup>2</sup>", "10^6 | 1 | 2"),
    ],
)
def test_a_superscript_after_a_number_does_not_merge_with_it(source: str, text: str) -> None:
    assert page(source).text == text


@pytest.mark.parametrize(
    ("formula", "line"),
    [
        ("<mn>1</mn><mfrac><mn>1</mn><mn>2</mn></mfrac>", "1 1/2"),
        ("<mfrac><mrow><mi>x</mi><mo>+</mo><mn>1</mn></mrow><mrow><mo>(</mo><mi>y</mi><mo>)</mo></mrow></mfrac>", "(x+1)/(y)"),
        ("<mfrac linethickness=0><mi>n</mi><mi>k</mi></mfrac>", "n; k"),
        ("<msup><mn>10</mn><mn>9</mn></msup><msubsup><mi>x</mi><mi>i</mi><mi>n</mi></msubsup>", "10^9 x_i^n"),
        ("<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>", "∑_(i=1)^n"),
        ("<msub><mi>x</mi><mi>i</mi></msub><mi>y</mi><mo>+</mo><mn>2</mn><mi>z</mi>", "x_i y+2z"),
        ("<msqrt><mi>x</mi><mi>y</mi></msqrt><mroot><mi>x</mi><mn>3</mn></mroot>", "√(xy)√[3]x"),
        ("<semantics><mtext>if <b>x</b></mtext><annotation>y</annotation></semantics>", "if x"),
        ("<mrow>" * 60 + "<mfrac><mn>1</mn><mn>2</mn></mfrac>", "12"),
    ],
)  # fmt: skip
def test_a_formula_is_a_line(formula: str, line: str) -> None:
    assert page(f"<p>Of <math>{formula}</math>").text == f"Of {line}"


def test_character_references_are_resolved_once() -> None:
    assert page("<p>a &amp;lt;b&amp;gt; &lt;i&gt; &amp;amp;</p>").text == "a &lt;b&gt; <i> &amp;"


def test_references_cannot_bring_back_unwanted_characters_or_forge_a_heading() -> None:
    parsed = page("<p>a&#xFDD1;b&#xFDDF;&#8203;c</p>")
    assert parsed.text == "abc"
    assert parsed.sections == ()


def test_external_entities_are_not_resolved() -> None:
    source = b'<!DOCTYPE html [<!ENTITY x SYSTEM "file:///etc/passwd">]><p>words &x;</p>'
    assert "root:" not in parse("a.html", source).text


def test_the_declared_encoding_is_used() -> None:
    source = '<html><meta charset="iso-8859-1"><p>Café Zoë Ærø</p>'
    assert parse("a.html", source.encode("latin-1")).text == "Café Zoë Ærø"


@pytest.mark.parametrize("element", ["<div>", "<ul><li>", "<table><tr><td>", "<blockquote>", "<font>", "<unknown>"])
def test_deep_nesting_keeps_every_word(element: str) -> None:
    depth = 400
    words = [f"word{n}" for n in range(depth)]
    text = page("".join(f"{element}{word} " for word in words)).text
    assert text.split() and all(word in text for word in words)


def test_nesting_without_end_is_refused_not_cut() -> None:
    with pytest.raises(Rejected, match="nested too deeply"):
        page("<div>" * 100_000 + "words")


@pytest.mark.parametrize(
    "body",
    [
        "<b>x</b> " * 50_000,
        "".join(f"<x{n}>a</x{n}>" for n in range(20_000)),
        "<td>a" * 20_000,
        f"<img alt='{'1' * 996}! a'>" * 2_000,
    ],
)
def test_storms_of_elements_are_read_in_bounded_time(body: str) -> None:
    started = time.process_time()
    page(body)
    assert time.process_time() - started < 8


@pytest.mark.parametrize(
    ("style", "source"),
    [
        ("", "<p hidden>x"),
        ("", "<p style='DISPLAY : none !important'>x"),
        ("", "<dialog><p>x</dialog>"),
        ("", "<p style='visibility:hidden'>x"),
        ("", "<p style='font-size:0.0px'>x <b>y</b>"),
        ("", "<p style='opacity: 0'>x"),
        ("", "<p style='position:absolute; left:-9999px'>x"),
        ("", "<p style='text-indent:-9999px'>x"),
        ("", "<p style='position:absolute;overflow:hidden;clip:rect(0, 0, 0, 0)'>x"),
        ("", "<p style='height:0;overflow:hidden'>x"),
        (".a{display:none}", "<p class='b a'>x"),
        ("#m { visibility: hidden }", "<p id=m>x"),
        ("aside{color:red;display:none}", "<aside>x</aside>"),
        ("P.a , p.b{display:none}", "<p class=b>x"),
        ("/* .a{display:block} */ .a{display:none}", "<p class=a>x"),
        ("p{display:block} .a{display:none} p{display:block}", "<p class=a>x"),
        ("@media screen{.a{display:none}} @media print{p{display:block}}", "<p class=a>x"),
        ("nav dt{display:block} .a{display:none}", "<dl><dt class=a>x</dl>"),
        (".a{display:none} .a::before{display:block}", "<p class=a>x"),
        ("@import 'b.css'; .a{display:none}", "<table class=a><tr><td>x</table>"),
    ],
)
def test_words_that_the_author_hid_are_left_out_and_counted_and_kept_if_asked_for(style: str, source: str) -> None:
    body = f"<style>{style}</style><p>seen</p>{source}".encode()
    parsed = parse("a.html", body)
    assert parsed.text == "seen" and parsed.left_out.hidden_words >= 1
    kept = parse("a.html", body, keeps_hidden=True)
    assert kept.text.startswith("seen\n\nx") and kept.left_out.hidden_words == 0


@pytest.mark.parametrize(
    ("style", "source"),
    [
        ("", "<details><summary>more</summary>x</details>"),
        ("", "<dialog open>x</dialog>"),
        ("", "<p hidden=until-found>x"),
        ("", "<div role=tabpanel hidden aria-hidden=true>x</div>"),
        ("", "<p style='opacity:0.5;font-size:0.5em'>x"),
        ("", "<div style='font-size:0'><p style='font-size:14px'>x</p></div>"),
        ("", "<div style='visibility:hidden'><p style='visibility:visible'>x</p></div>"),
        ("", "<div style='height:0;padding-bottom:56%;overflow:hidden'>x</div>"),
        ("body{opacity:0} html{display:none}", "<p>x"),
        (".a{display:none} .a{display:block}", "<p class=a>x"),
        (".a{display:none} #b{display:block}", "<p class=a id=b>x"),
        (".a{display:none}", "<p class=a style='display:block'>x"),
        (".a{display:none !important} .a{display:none}", "<p class=a style='display:block !important'>x"),
        ("@media print{.a{display:none}}", "<p class=a>x"),
        ("@media (max-width:600px){.a{display:none}}", "<p class=a>x"),
        (".a{display:none} @media (min-width:600px){.sm\\:block{display:block}}", "<p class='a sm:block'>x"),
        (".tab{display:none} .tab.open{display:block}", "<p class='tab open'>x"),
        (".tab{display:none} #tabs > div.open.tab:not([id]){display:block}", "<p class=tab>x"),
        (".tab{display:none} input:checked ~ .tab{display:block}", "<p class=tab>x"),
        (".a{opacity:0; transition:opacity 1s}", "<p class=a>x"),
        (".a{display:none}</style><script>show('.a')</script><style>", "<p class=a>x"),
        (".b .a, .a:hover, a{display:none}", "<p class=a>x"),
        ("</style><style media=print>.a{display:none}", "<p class=a>x"),
        (".a{display:none", "<p class=a>x"),
    ],
)
def test_words_that_are_shown_or_that_a_click_shows_are_kept(style: str, source: str) -> None:
    parsed = parse("a.html", f"<style>{style}</style><body>{source}".encode())
    assert parsed.text.endswith("x") and parsed.left_out.hidden_words == 0


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<label><input type=checkbox checked> Nuts</label><label><input type=checkbox> Milk</label>", "[x] Nuts [ ] Milk"),
        ("<label>Yes <input type=radio></label> <label>No <input type=radio checked></label>", "[ ] Yes [x] No"),
        ("<input id=a type=CHECKBOX checked hidden><label for=a>Nuts</label>", "[x] Nuts"),
        ("<label for=a>Nuts</label><input id=a type=checkbox checked style='opacity:0'>", "[x] Nuts"),
        ("<ul><li><input type=checkbox checked disabled> Sweep</ul>", "* [x] Sweep"),
        ("<table><tr><td>Nuts<td><input type=checkbox checked></table>", "Nuts | [x]"),
        ("<ul><li class=checked data-inline-task-id=1><b>Sweep</b><li data-inline-task-id=2>Mop</ul>", "* [x] Sweep\n  * [ ] Mop"),
        ("<ul><li><div class='checkbox checkbox-on'></div> Sweep<li><div class='checkbox checkbox-off'></div> Mop</ul>", "* [x] Sweep\n  * [ ] Mop"),
        ("<div role=checkbox aria-checked=true>Nuts</div><div role=radio aria-checked=false>Milk</div>", "[x] Nuts\n[ ] Milk"),
        ("x<input type=checkbox role=button><pre><input type=checkbox>y</pre>", "x\ny"),
        ("<label>Name</label><input value=Ines><input type=hidden value=t><input type=submit value=Go>", "Name Ines"),
        ("Land: <select><option>Chile<option selected>Norge<option selected>Sverige</select>.", "Land: Norge Sverige ."),
        ("Land: <select><option>Chile</select>", "Land:"),
        ("Note: <textarea>after\nten</textarea>", "Note: after ten"),
        ("Born: <input type=date value=1990-05-17> <input type=password value=secret>", "Born: 1990-05-17"),
    ],
)  # fmt: skip
def test_ticks_and_values_of_a_form_stand_beside_their_labels(source: str, text: str) -> None:
    assert page(f"<form>{source}</form>").text == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("320<span style='vertical-align:super'>1</span> seats", "320^1 seats"),
        ("320<i class=note>1</i>, 1010<i class=base>2</i>", "320^1, 1010_2"),
        ("a<span class=note>1</span> <td class=note>2", "a1\n2"),
    ],
)
def test_numbers_that_a_style_raises_do_not_merge_with_those_before_them(source: str, text: str) -> None:
    assert page(source, "<style>.note{vertical-align:super}.base{vertical-align:sub}</style>").text == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("is <del>300 <b>euro</b></del> 450 <ins>euro</ins>", "is ~~300 euro~~ 450 euro"),
        ("a<s> b </s>c <strike>d</strike><s></s>", "a ~~b~~ c ~~d~~"),
        ("<del><p>a</p><ul><li>b<li>c</ul></del>d", "~~a~~\n\n  * ~~b~~\n  * ~~c~~\nd"),
        ("<p class=repealed>Dogs <i>on</i> a lead.</p>", "~~Dogs on a lead.~~"),
        ("<span style='text-decoration-line: underline line-through'>x</span>", "~~x~~"),
        ("<table><tr class=repealed><td>a<td>b<tr><td>c<td>d</table>", "~~a~~ | ~~b~~\nc | d"),
        ("10<s><sup>6</sup></s> <s>a</s><s>b</s>", "10~~^6 ab~~"),
    ],
)
def test_struck_words_are_marked_line_by_line(source: str, text: str) -> None:
    assert page(source, "<style>.repealed{text-decoration:line-through red}</style>").text == text


def test_a_struck_heading_and_its_section_are_marked() -> None:
    assert page("<h2><s>Dogs</s></h2><p>x").sections[0].title == "~~Dogs~~"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<p>Before<p><img alt='The weir,\nseen from the road'><p>After", "Before\n\n[Picture: The weir, seen from the road]\n\nAfter"),
        ("Press <img alt='the gear'> twice", "Press [Picture: the gear] twice"),
        ("x<img alt=''><img><img alt='IMG_2041.JPG'><img alt='image 3'><img alt=20240131_103>", "x"),
        ("x<img alt='A weir' aria-hidden=true><img alt='A gate' style='display:none'>", "x"),
        ("x<a href=b><i><img alt=Next></i></a><a href=b.jpg><img alt=Duck></a>", "x[Picture: Duck]"),
        ("<a href=b><img alt='Half price until Sunday'></a>", "[Picture: Half price until Sunday]"),
        ("<img alt='A gate. Description automatically generated with low confidence'>", "[Picture: A gate.]"),
        ("<img alt='A gate\n\nAI-generated content may be incorrect.'>", "[Picture: A gate]"),
    ],
)  # fmt: skip
def test_the_description_of_a_picture_stands_in_its_place(source: str, text: str) -> None:
    assert page(source).text == text
