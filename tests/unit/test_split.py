"""Chunks: what they hold, how long they are, and where the cuts fall."""

import random
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ingest.cuts import Words
from ingest.parse import Page, Parsed, Section, parse
from ingest.split import split
from ragkv.chunk import Chunk, prompt_text
from ragkv.errors import TooLarge
from ragkv.settings import MIN_CHUNK_TOKENS
from ragkv.tokenizer import Tokenizer
from tests.support.growth import assert_linear
from tests.support.made_files import odf, pptx, shape

SAMPLE = Path(__file__).parents[2] / "docs" / "sample"
ALPHABETS = ["abcdefghij", "äöüßéñ", "абвгд", "你好世界天地", "مرحبا", "😀🎉👩‍👧", "-_/.:", "0123456789"]
CLUSTERS = [
    "กี่",
    "น้",
    "क्षि",
    "கி",
    "ကြို",
    "e\u0323\u0301",
    "\u1112\u1161\u11ab",
    "한",
    "👩🏽\u200d❤\ufe0f\u200d💋\u200d👨🏿",
    "🇩🇪",
    "1\ufe0f\u20e3",
    "。\ufe00",
]
SEPARATORS = [" ", " ", " ", " ", ". ", "! ", "\n", "\n\n", "\t", "。", "...", "? "]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """Byte-level, as the models' own, trained on the sample in a moment."""
    raw = RawTokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=3000, initial_alphabet=alphabet, special_tokens=["<end>"], show_progress=False
    )
    raw.train_from_iterator([path.read_text() for path in sorted((SAMPLE / "documents").glob("*.md"))], trainer)
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>"))


def plain(text: str, title: str = "Title", sections: tuple[Section, ...] = ()) -> Parsed:
    return Parsed(title, text, pages=(), media_type="text/plain", sections=sections)


def markdown(source: str) -> Parsed:
    return parse("a.md", source.encode())


def check(parsed: Parsed, chunks: list[Chunk], tokenizer: Tokenizer, chunk_tokens: int) -> None:
    """What holds for every split."""
    position = 0
    left_out: list[str] = []
    for ordinal, chunk in enumerate(chunks):
        assert (chunk.id, chunk.ordinal, chunk.document_id) == (f"doc:{ordinal}", ordinal, "doc")
        assert parsed.text[chunk.start : chunk.end] == chunk.text == chunk.text.strip() != ""
        assert list(chunk.token_ids) == tokenizer.encode(prompt_text(chunk.title, chunk.text))
        assert chunk.num_tokens <= chunk_tokens
        assert chunk.start >= position
        left_out.append(parsed.text[position : chunk.start])
        position = chunk.end
    left_out.append(parsed.text[position:])
    headings = {line.strip() for s in parsed.sections for line in parsed.text[s.start : s.body].split("\n")}
    assert {line.strip() for gap in left_out for line in gap.split("\n")} <= headings | {""}


def sentences(count: int, words: int = 9, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    names = ["river", "castle", "duke", "film", "village", "music", "born", "north", "company", "award"]
    return [" ".join(rng.choices(names, k=words)).capitalize() + "." for _ in range(count)]


def test_any_text_is_covered_exactly_and_fits(tokenizer: Tokenizer, subtests: pytest.Subtests) -> None:
    for seed in range(20):
        for chunk_tokens in [MIN_CHUNK_TOKENS, 50, 256]:
            with subtests.test(seed=seed, chunk_tokens=chunk_tokens):
                rng = random.Random(seed)
                pieces = []
                for _ in range(rng.randrange(1, 400)):
                    length = 400 if rng.random() < 0.01 else rng.randrange(1, 12)
                    pieces += ["".join(rng.choices(rng.choice(ALPHABETS), k=length)), rng.choice(SEPARATORS)]
                text = "".join(pieces).strip() or "a"
                places = sorted(rng.sample(range(len(text)), min(5, len(text))))
                sections = tuple(
                    Section(p, p, "".join(rng.choices("abc ", k=rng.randrange(1, 300))), rng.randrange(1, 4))
                    for p in places
                )
                parsed = plain(text, sections=sections)
                chunks = split("doc", parsed, tokenizer, chunk_tokens)
                assert "".join("".join(c.text.split()) for c in chunks) == "".join(text.split())
                check(parsed, chunks, tokenizer, chunk_tokens)


@pytest.mark.parametrize("path", sorted((SAMPLE).rglob("*.*")), ids=lambda path: path.name)
def test_the_sample_is_covered_but_for_its_headings(path: Path, tokenizer: Tokenizer) -> None:
    parsed = parse(path.name, path.read_bytes())
    check(parsed, split("doc", parsed, tokenizer, 256), tokenizer, 256)


def test_chunks_that_turn_out_too_long_are_cut_again(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a tokenizer that makes far more tokens of a text than of its words one by one."""
    monkeypatch.setattr("ingest.split._SEAM_TOKENS", -30)
    parsed = plain(" ".join(sentences(80)))
    chunks = split("doc", parsed, tokenizer, 64)

    assert "".join("".join(chunk.text.split()) for chunk in chunks) == "".join(parsed.text.split())
    check(parsed, chunks, tokenizer, 64)


def test_a_short_text_is_one_chunk_and_no_text_none(tokenizer: Tokenizer) -> None:
    assert [c.text for c in split("doc", plain("One short sentence."), tokenizer, 64)] == ["One short sentence."]
    assert split("doc", plain(""), tokenizer, 64) == []


@pytest.mark.parametrize("text", ["a" * 100_000, " ".join(map(str, range(30_000)))], ids=["one line", "words"])
def test_who_watches_may_stop_it_anywhere(tokenizer: Tokenizer, text: str):
    """A document that is deleted meanwhile must not hold up the next for minutes."""
    looks: list[int] = []
    split("doc", plain(text), tokenizer, 64, watch=lambda: looks.append(len(looks)))
    assert len(looks) >= 3

    def stop() -> None:
        if not left:
            raise InterruptedError
        left.pop()

    for last in looks[:: len(looks) // 3]:
        left = looks[:last]
        with pytest.raises(InterruptedError):
            split("doc", plain(text), tokenizer, 64, watch=stop)


def test_cuts_fall_between_paragraphs_where_they_can(tokenizer: Tokenizer) -> None:
    paragraphs = [" ".join(sentences(2, seed=n)) for n in range(30)]
    chunks = split("doc", plain("\n\n".join(paragraphs)), tokenizer, 128)
    assert all(paragraph in paragraphs for chunk in chunks for paragraph in chunk.text.split("\n\n"))


def test_cuts_fall_between_sentences_where_paragraphs_are_long(tokenizer: Tokenizer) -> None:
    text = " ".join(f"{s} Dr. Smith of the U.S. agreed.[12]" for s in sentences(60))
    chunks = split("doc", plain(text), tokenizer, 100)
    assert len(chunks) > 5
    assert all(chunk.text.endswith((".", "]")) and not chunk.text.endswith("Dr.") for chunk in chunks)


def test_words_are_cut_only_where_one_alone_is_too_long(tokenizer: Tokenizer) -> None:
    words = ["word"] * 100 + ["x1" * 300] + ["word"] * 100
    chunks = split("doc", plain(" ".join(words)), tokenizer, 64)
    pieces = [piece for chunk in chunks for piece in chunk.text.split()]
    assert [p for p in pieces if p != "word"] == [p for p in pieces if set(p) <= {"x", "1"}]
    assert "".join(p for p in pieces if p != "word") == "x1" * 300


def test_a_run_without_spaces_is_cut_between_grapheme_clusters(tokenizer: Tokenizer, subtests: pytest.Subtests) -> None:
    for cluster in CLUSTERS:
        with subtests.test(cluster=ascii(cluster)):
            chunks = split("doc", plain(cluster * 3000), tokenizer, 256)

            assert len(chunks) > 10
            assert {chunk.text.replace(cluster, "") for chunk in chunks} == {""}


def test_no_cut_falls_into_a_grapheme_cluster(tokenizer: Tokenizer, subtests: pytest.Subtests) -> None:
    for seed in range(8):
        with subtests.test(seed=seed):
            rng = random.Random(seed)
            clusters = []
            for _ in range(rng.randrange(1, 40)):
                clusters += rng.choices(
                    rng.sample([*CLUSTERS, "a", "你", "۱"], rng.randrange(1, 5)), k=rng.randrange(1, 600)
                )
                clusters += rng.choices(["。", " ", "\n", ""])
            places = set(accumulate(map(len, clusters), initial=0))
            text = "".join(clusters)
            parsed = plain(text)
            chunks = split("doc", parsed, tokenizer, 256)

            check(parsed, chunks, tokenizer, 256)
            assert {place for chunk in chunks for place in (chunk.start, chunk.end)} <= places
            check(parsed, split("doc", parsed, tokenizer, MIN_CHUNK_TOKENS), tokenizer, MIN_CHUNK_TOKENS)


def test_a_cluster_that_fits_no_chunk_is_cut(tokenizer: Tokenizer, subtests: pytest.Subtests) -> None:
    for endless in ["\u0301", "\u200d👩", "्क", "\u0600"]:
        for chunk_tokens in [MIN_CHUNK_TOKENS, 256]:
            with subtests.test(endless=ascii(endless), chunk_tokens=chunk_tokens):
                parsed = plain("👩" + endless * 6000)
                chunks = split("doc", parsed, tokenizer, chunk_tokens)

                check(parsed, chunks, tokenizer, chunk_tokens)
                assert len(chunks) > 10


def test_a_long_title_is_cut_between_grapheme_clusters(tokenizer: Tokenizer) -> None:
    (chunk,) = split("doc", plain("words", title="กี่" * 100), tokenizer, 256)
    assert chunk.title.removesuffix("…").replace("กี่", "") == ""


def test_a_last_word_beyond_the_budget_is_a_part_of_its_own(tokenizer: Tokenizer) -> None:
    text = "One short incomprehensibilities"
    words = Words(text, tokenizer, longest=100)
    assert [text[start:end] for start, end in words.cut(0, len(text), 1)] == text.split()


def test_chunks_are_filled_and_leave_no_small_rest(tokenizer: Tokenizer) -> None:
    chunks = split("doc", plain(" ".join(sentences(101))), tokenizer, 128)
    assert min(chunk.num_tokens for chunk in chunks) > 64
    assert sum(chunk.num_tokens for chunk in chunks) / len(chunks) > 0.85 * 128


def test_articles_do_not_share_a_chunk(tokenizer: Tokenizer) -> None:
    bodies = [" ".join(sentences(5, seed=n)) for n in range(6)]
    source = "# Films\n\n" + "\n\n".join(f"## Film {n}\n\n{body}" for n, body in enumerate(bodies))
    chunks = split("doc", markdown(source), tokenizer, 256)
    assert [chunk.title for chunk in chunks] == [f"Films: Film {n}" for n in range(6)]
    assert [chunk.text for chunk in chunks] == bodies


def test_small_sections_share_a_chunk_and_keep_their_headings_in_it(tokenizer: Tokenizer) -> None:
    source = "# Questions\n\n" + "\n\n".join(f"## Why {n}?\n\nBecause." for n in range(6))
    (chunk,) = split("doc", markdown(source), tokenizer, 256)
    assert chunk.title == "Questions"
    assert all(f"## Why {n}?" in chunk.text for n in range(6))


def test_small_sections_fill_three_quarters_of_a_chunk(tokenizer: Tokenizer) -> None:
    source = "# Questions\n\n" + "\n\n".join(f"## Why {n}?\n\nBecause." for n in range(100))
    sizes = [len(tokenizer.encode(chunk.text)) for chunk in split("doc", markdown(source), tokenizer, 256)]

    assert all(0.65 * 256 < size <= 0.75 * 256 for size in sizes[:-1])


def test_a_title_is_the_path_of_headings(tokenizer: Tokenizer) -> None:
    body = " ".join(sentences(8))
    chunks = split(
        "doc", markdown(f"# Duck\n\n## Behaviour\n\n### Feeding\n\n{body}\n\n## Uses\n\n{body}"), tokenizer, 256
    )
    assert [chunk.title for chunk in chunks] == ["Duck: Behaviour: Feeding", "Duck: Uses"]


def test_a_heading_with_nothing_under_it_is_not_lost(tokenizer: Tokenizer) -> None:
    body = " ".join(sentences(8))
    chunks = split("doc", markdown(f"# Duck\n\n## Feeding\n\n{body}\n\n## References"), tokenizer, 256)
    assert "References" in " ".join(chunk.text for chunk in chunks)


def test_a_long_title_is_cut_and_its_heading_stays_in_the_text(tokenizer: Tokenizer) -> None:
    heading = "A very long heading " * 20
    (first, *_) = split("doc", markdown(f"# Duck\n\n## {heading}\n\n" + " ".join(sentences(8))), tokenizer, 64)
    assert first.title.endswith("…")
    assert first.text.startswith("# Duck\n\n## A very long heading")


def test_words_of_headings_that_are_longer_than_a_title_are_in_chunks(
    tokenizer: Tokenizer, subtests: pytest.Subtests
) -> None:
    heading = " ".join(f"word{number}" for number in range(150))
    files = {
        "title.md": f"# {heading}\n\n## Grass\n\nFresh.".encode(),
        "section.md": f"# Duck\n\n## {heading}\n\nFresh.".encode(),
        "last.md": f"# Duck\n\nFresh.\n\n## {heading}".encode(),
        "slide.pptx": pptx([shape(heading, "title") + shape("Fresh.")]),
        "text.odt": odf("text", f'<text:h text:outline-level="1">{heading}</text:h><text:p>Fresh.</text:p>'),
        "article.xml": f"<article><title>{heading}</title><para>Fresh.</para></article>".encode(),
    }
    for name, body in files.items():
        for chunk_tokens in [64, 256, 1024]:
            with subtests.test(name, chunk_tokens=chunk_tokens):
                chunks = split("doc", parse(name, body), tokenizer, chunk_tokens)
                words = {word for chunk in chunks for word in f"{chunk.title} {chunk.text}".split()}
                assert words >= set(heading.split())


def test_headings_without_text_stay_in_the_text_below_a_path_that_is_too_long(tokenizer: Tokenizer) -> None:
    body = " ".join(sentences(8))
    headings = f"# Duck\n\n## Feeding\n\n### {'Words of a long heading ' * 3}\n\n#### Fresh\n\n"
    chunks = split("doc", markdown(f"{headings}{body}"), tokenizer, 64)
    assert "".join("".join(chunk.text.split()) for chunk in chunks) == "".join(f"{headings}{body}".split())
    assert {chunk.title for chunk in chunks} == {"Fresh"}


def test_headings_without_text_stay_above_small_sections_that_share_a_chunk(tokenizer: Tokenizer) -> None:
    source = "# Duck\n\n## Feeding\n\n### Grass\n\n#### Fresh\n\nYes.\n\n## Flying\n\nFar."
    (chunk,) = split("doc", markdown(source), tokenizer, 256)
    assert (chunk.title, chunk.text) == ("Duck", source.removeprefix("# Duck\n\n"))

    deeper = source.replace("## Flying", "### Flying")
    (chunk,) = split("doc", markdown(deeper), tokenizer, 256)
    assert (chunk.title, chunk.text) == ("Duck: Feeding", deeper.partition("Feeding\n\n")[2])


def test_the_page_is_that_of_the_first_character(tokenizer: Tokenizer) -> None:
    texts = [" ".join(sentences(8, seed=n)) for n in range(4)]
    text = "\n\n".join(texts)
    starts = [text.index(t) for t in texts]
    pages = tuple(
        Page(n, start, start + len(t)) for n, (start, t) in enumerate(zip(starts, texts, strict=True), start=1)
    )
    chunks = split("doc", Parsed("Title", text, pages, "application/pdf"), tokenizer, 128)
    for chunk in chunks:
        assert chunk.page is not None
        assert pages[chunk.page - 1].start <= chunk.start < pages[chunk.page - 1].end
        inside = [start - chunk.start for start in starts if chunk.start < start < chunk.end]
        assert chunk.page_breaks == tuple(inside)
    assert any(chunk.page_breaks for chunk in chunks)


def test_special_tokens_in_a_document_are_spelled_out(tokenizer: Tokenizer) -> None:
    chunks = split("doc", plain("before <end> after", title="<end>"), tokenizer, 64)
    (end,) = tokenizer.encode_template("<end>")
    assert end not in chunks[0].token_ids


def test_time_grows_with_the_length_of_the_text(tokenizer: Tokenizer) -> None:
    def seconds(count: int) -> float:
        parsed = plain(" ".join(sentences(count)))
        started = time.process_time()
        split("doc", parsed, tokenizer, 256)
        return time.process_time() - started

    seconds(100)
    assert seconds(8000) < 8 * 3 * max(seconds(1000), 0.02)


@pytest.mark.parametrize(
    "source",
    [
        lambda n: "a" * 100 * n,
        lambda n: "a" + " " * 100 * n + "b",
        lambda n: "a" + "🇩" * 100 * n,
        lambda n: "a" + "\u0301" * 100 * n,
        lambda n: "a" + "👩\u200d" * 50 * n,
        lambda n: "a." + "[1]" * 30 * n,
        lambda n: "a\n" * 30 * n,
        lambda n: "# a\n\nb\n\n" * 10 * n,
        lambda n: ("## " + "y" * 290 + "\n\n### " + "z" * 290 + "\n\nb\n\n") * n,
    ],
    ids=["one word", "one line", "flags", "marks", "joiners", "references", "lines", "headings", "long headings"],
)
def test_time_grows_with_the_length_of_hostile_text(tokenizer: Tokenizer, source: Callable[[int], str]) -> None:
    assert_linear(lambda parsed: split("doc", parsed, tokenizer, 256), lambda n: markdown(source(n)), 10)


def test_chunks_of_a_table_begin_and_end_with_whole_rows_under_their_labels(tokenizer: Tokenizer) -> None:
    rows = "".join(f"{n},Dr. Ann No. {n},Some words. And more!,{n * 7}\n" for n in range(300))
    parsed = parse("a.csv", f"Id,Name,Notes,Size\n{rows}".encode())
    chunks = split("doc", parsed, tokenizer, 256)

    check(parsed, chunks, tokenizer, 256)
    assert len(chunks) > 10
    assert all(chunk.text.startswith("Id: ") for chunk in chunks[1:])
    assert all(chunk.text.split(" | ")[-1].startswith("Size: ") for chunk in chunks)


def test_rows_stay_whole_however_wide_and_however_many(tokenizer: Tokenizer, subtests: pytest.Subtests) -> None:
    for columns in (4, 12):
        for count in range(5, 15):
            with subtests.test(columns=columns, count=count):
                rows = [",".join(f"{column * 37 + row} units" for column in range(columns)) for row in range(count)]
                labels = ",".join(f"Label{column}" for column in range(columns))
                parsed = parse("a.csv", "\n".join((labels, *rows)).encode())
                chunks = split("doc", parsed, tokenizer, 256)

                check(parsed, chunks, tokenizer, 256)
                assert all(chunk.text.startswith("Label0: ") for chunk in chunks[1:])
                assert all(chunk.text.split(" | ")[-1].startswith(f"Label{columns - 1}: ") for chunk in chunks)


def test_more_tokens_than_allowed_are_refused(tokenizer: Tokenizer):
    numbers = plain("1,2,3,4\n" * 100)
    tokens = sum(len(tokenizer.encode(f"{row}\n")) for row in numbers.text.splitlines())

    assert split("doc", numbers, tokenizer, 64, tokens + 100)
    with pytest.raises(TooLarge, match=r"more than 100 .*RAGKV_MAX_DOCUMENT_TOKENS"):
        split("doc", numbers, tokenizer, 64, 100)
