"""OCR: pictures and scanned pages, read in the sandbox with the models that an installation has."""

import struct
import subprocess
import sys
import tempfile
import zlib

import pytest
from PIL import Image, ImageFont

from ingest.parse.parsed import Parsed
from ingest.sandbox.messages import KeptPages, Limits, OCRLimits, decode_kept, encode
from ingest.sandbox.parser import OCR_ENVIRONMENT, Parser, ReadInPart
from ragkv.errors import Rejected, TooLarge, Unsupported
from ragkv.file_types import NOT_INSTALLED, SWITCHED_OFF
from tests.support.made_files import pdf
from tests.support.scans import DRAGON, GEESE, encoded, picture, scanned_pdf

MAX_PAGES = 3


@pytest.fixture(scope="module")
def parser():
    parser = Parser(Limits(60, 2048), OCRLimits(MAX_PAGES, 120))
    yield parser
    parser.close()


def read(parser: Parser, body: bytes, name: str = "a", watch=lambda done, total: None) -> Parsed:
    with tempfile.TemporaryFile() as file:
        file.write(body)
        file.seek(0)
        return parser.parse(name, file, watch)


def in_turns(parser: Parser, body: bytes) -> tuple[Parsed, list[int]]:
    """The document, read in turns of one page, and the numbers of pages that each turn began with."""
    kept, numbers = KeptPages(), []
    with tempfile.TemporaryFile() as file:
        file.write(body)
        while True:
            file.seek(0)
            numbers.append(len(kept.pages))
            try:
                return parser.parse("a", file, is_over=lambda: True, earlier=kept), numbers
            except ReadInPart as part:
                kept = decode_kept(encode(part.kept))


@pytest.mark.parametrize(
    "body",
    [
        scanned_pdf(["The first page has a text layer.", picture(DRAGON, degrees=90), picture(GEESE), picture(DRAGON)]),
        encoded(picture(DRAGON), "TIFF", save_all=True, append_images=[picture(GEESE), picture(DRAGON)]),
    ],
    ids=["PDF", "TIFF"],
)
def test_a_document_read_in_turns_is_the_one_that_is_read_at_once(parser: Parser, body: bytes):
    """Lines and boxes included; each turn goes on where the last one ended."""
    parsed, numbers = in_turns(parser, body)

    assert numbers in ([0, 1, 2], [0, 2], [0, 1]), "a page may be begun before the turn's end is known"
    assert parsed == read(parser, body)


def test_the_seconds_of_all_turns_count(parser: Parser):
    slow = picture(DRAGON * 20, size=(1200, 2300))
    with tempfile.TemporaryFile() as file:
        file.write(scanned_pdf([slow] * 3))
        file.seek(0)
        with pytest.raises(ReadInPart) as paused:
            parser.parse("a", file, is_over=lambda: True)
        assert paused.value.kept.seconds >= 1
        file.seek(0)
        with pytest.raises(TooLarge, match="more than 120 s"):
            parser.parse("a", file, earlier=KeptPages(paused.value.kept.pages, 119))


def bomb(width: int, height: int) -> bytes:
    """A PNG of that size in a few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("format_", ["PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF"])
def test_an_image_is_one_page_of_its_words(parser: Parser, format_: str):
    parsed = read(parser, encoded(picture(DRAGON), format_), "the_dragon.bin")

    assert parsed.text == "\n".join(DRAGON)
    assert parsed.title == "the dragon"
    assert parsed.media_type == f"image/{format_.lower()}"
    (page,) = parsed.pages
    assert (page.start, page.end) == (0, len(parsed.text))


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_text_is_read_upright_however_the_page_lies(parser: Parser, degrees: int):
    (scan,) = read(parser, encoded(picture(DRAGON, degrees=degrees))).scans

    assert [line.text for line in scan.lines] == DRAGON
    assert [line.quarters * 90 for line in scan.lines] == [degrees, degrees]


def test_a_page_that_a_pdf_shows_turned_is_read_upright(parser: Parser):
    parsed = read(parser, scanned_pdf([picture(DRAGON)], rotate=90))

    assert parsed.text == "\n".join(DRAGON)
    assert (parsed.scans[0].width, parsed.scans[0].height) == (100, 240)


def test_only_pages_without_text_are_read_by_ocr_and_progress_is_told(parser: Parser):
    seen: list[tuple[int, int]] = []
    body = scanned_pdf(["The first page has a text layer.", picture(DRAGON), picture(GEESE), "So has the last."])
    parsed = read(parser, body, watch=lambda done, total: seen.append((done, total)))

    assert [parsed.text[page.start : page.end] for page in parsed.pages] == [
        "The first page has a text layer.", "\n".join(DRAGON), "\n".join(GEESE), "So has the last.",
    ]  # fmt: skip
    assert [scan.number for scan in parsed.scans] == [2, 3]
    assert {total for _, total in seen} == {0, 2}
    assert seen == sorted(seen, key=lambda told: (told[1], told[0]))


def test_every_frame_of_a_tiff_is_a_page(parser: Parser):
    frames = encoded(picture(DRAGON), "TIFF", save_all=True, append_images=[picture(GEESE)])
    parsed = read(parser, frames)

    assert [parsed.text[page.start : page.end] for page in parsed.pages] == ["\n".join(DRAGON), "\n".join(GEESE)]


def test_lines_lie_on_their_ink(parser: Parser):
    image = picture(DRAGON, degrees=90).convert("L")
    (scan,) = read(parser, encoded(image)).scans
    for line in scan.lines:
        box = line.part(4, 10)
        inside = image.crop((int(box.x), int(box.y), int(box.x + box.width), int(box.y + box.height)))

        assert box.height < 120 and box.width < 40, "six letters of a line that runs down"
        assert inside.getextrema()[0] < 100


def test_words_lie_within_a_letter_of_where_they_stand(parser: Parser):
    """The words end where a narrow letter follows a wide one: equal shares of the line would be wrong by more."""
    image = picture(["Geese fly south in autumn"]).convert("L")
    (scan,) = read(parser, encoded(image)).scans
    box = scan.lines[0].part(10, 15)
    font = ImageFont.load_default(24)

    assert abs(box.x - 40 - font.getlength("Geese fly ")) < font.getlength("o")
    assert abs(box.x + box.width - 40 - font.getlength("Geese fly south")) < font.getlength("o")


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "CMYK", "I;16"])
def test_pixels_of_any_kind_are_read(parser: Parser, mode: str):
    image = picture(DRAGON)
    if mode == "I;16":
        image = image.convert("I").point(lambda value: value * 256).convert("I;16")
    if mode == "RGBA":  # black on nothing
        image.putalpha(image.convert("L").point(lambda value: 255 - value))
    body = encoded(image if mode in {"I;16", "RGBA"} else image.convert(mode), "TIFF")

    assert read(parser, body).text == "\n".join(DRAGON)


def test_a_photograph_that_a_camera_took_sideways_is_shown_upright(parser: Parser):
    exif = Image.Exif()
    exif[0x0112] = 6
    (scan,) = read(parser, encoded(picture(DRAGON, degrees=270), "JPEG", exif=exif)).scans

    assert (scan.width, scan.height) == (480, 200)
    assert {line.quarters for line in scan.lines} == {0}


@pytest.mark.parametrize(
    ("body", "error", "reason"),
    [
        (bomb(60_000, 60_000), TooLarge, "pixels: make it smaller"),
        (bomb(4_000, 4_000), Rejected, "damaged or cut short"),
        (encoded(picture(DRAGON), "JPEG")[:2_000], Rejected, "damaged or cut short"),
        (b"GIF89a is no text", Rejected, "damaged or cut short"),
        (encoded(picture([])), Rejected, "contains no text"),
        (scanned_pdf([picture([])]), Rejected, "no text on its pages"),
        (scanned_pdf([picture(DRAGON)] * (MAX_PAGES + 1)), TooLarge, "4 pages without text, and OCR reads at most 3"),
        (encoded(picture(DRAGON * 20, (480, 2_000))), TooLarge, "one of its pages takes more than 0.01 s"),
    ],
    ids=["bomb", "hollow", "cut short", "garbage", "blank", "blank scan", "too many pages", "hang"],
)
def test_what_cannot_be_read_says_why_and_costs_itself_alone(
    parser: Parser, body: bytes, error: type[Exception], reason: str, monkeypatch: pytest.MonkeyPatch
):
    if "0.01 s" in reason:
        monkeypatch.setattr(parser, "_ocr_limits", Limits(60, 2048, page_seconds=0.01))
    with pytest.raises(error, match=reason):
        read(parser, body)
    assert read(parser, b"words").text == "words"


@pytest.mark.parametrize(("advice", "named"), [(SWITCHED_OFF, "RAGKV_OCR"), (NOT_INSTALLED, "ragkv.ocr.")])
def test_without_ocr_a_scan_says_what_to_do_and_other_pages_are_read(advice: str, named: str):
    parser = Parser(Limits(60, 2048), advice)
    mixed = scanned_pdf(["The first page has a text layer.", picture(DRAGON)])
    try:
        for body in (encoded(picture(DRAGON)), scanned_pdf([picture(DRAGON)])):
            with pytest.raises(Unsupported, match=named):
                read(parser, body)
        assert read(parser, mixed).text == "The first page has a text layer."
    finally:
        parser.close()


def test_documents_with_text_never_load_ocr():
    parser = Parser(Limits(60, 2048), OCRLimits(1, 1))
    read(parser, pdf([["words"]]))

    assert list(parser._servers) == [False]
    parser.close()


def test_nothing_is_downloaded_or_sent_and_no_thread_is_started():
    """The models come with the package, and ONNX Runtime's telemetry, a thread with a file, is off."""
    code = """
import os, sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "_thread.start_new_thread"):
        raise SystemExit(event)
sys.addaudithook(refuse)
from ingest.ocr.rapid import Recogniser
Recogniser()
opened = [os.readlink(f"/proc/self/fd/{number}") for number in range(3, 20) if os.path.exists(f"/proc/self/fd/{number}")]
print(len(os.listdir("/proc/self/task")), [path for path in opened if path.startswith("/") and path != "/dev/null"])
"""
    command = [sys.executable, "-I", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=OCR_ENVIRONMENT)

    assert done.stdout.split() == ["1", "[]"]
