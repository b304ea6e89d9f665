"""Pages of PDF documents and images over HTTP: pictures, and boxes that lie on the cited words."""

import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from ctypes import byref, c_double
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pypdfium2 as pdfium
import pytest
from PIL import Image

from api.v1.passages import text_path
from ingest.page_views import WIDTHS, PageViews, _Kept
from ingest.parse.pdf import page_at
from ingest.parts import IngestParts
from ingest.pipeline import ingest_document
from ragkv.answer.sentences import sentences
from ragkv.kv.rule import KVWhen
from ragkv.service.parts import Parts
from ragkv.settings import MIN_CHUNK_TOKENS, Settings
from tests.support.hostile_files import FONTS, forms, page, stream
from tests.support.issued_keys import issue_key_by_name
from tests.support.made_files import pdf
from tests.support.over_http import Client, assert_problem, upload
from tests.support.scans import DRAGON, GEESE, encoded, picture, scanned_pdf

SAMPLE = (Path(__file__).parents[2] / "docs" / "sample" / "documents" / "aviation-and-space.pdf").read_bytes()
ROTATED = b"/Rotate 90 /CropBox [40 100 400 800] "


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Without KV: it shows nothing here."""
    return msgspec.structs.replace(settings, kv_when=KVWhen.NEVER)


def added(client: Client, ingest: IngestParts, body: bytes, name: str = "a.pdf") -> str:
    document_id = str(upload(client, body, name).json()["id"])
    ingest_document(document_id, ingest)
    return document_id


def boxes(client: Client, document_id: str, start: int, end: int) -> dict[str, Any]:
    response = client.get(f"/v1/documents/{document_id}/boxes", params={"start": start, "end": end})
    assert response.status_code == 200, response.text
    return response.json()


def chunks(client: Client, document_id: str) -> list[dict[str, Any]]:
    return client.get(f"/v1/documents/{document_id}/chunks", params={"limit": 200}).json()["items"]


def shown(client: Client, document_id: str, place: str) -> str:
    """The document's page in the dashboard."""
    return client.get(f"/admin/documents/{document_id}", params={"at": place}).text


def words(text: str) -> str:
    """Without spaces, and hyphens at the ends of lines."""
    return "".join(unicodedata.normalize("NFKD", text).replace("\ufffe", "").replace("\x02", "").split()).replace(
        "-", ""
    )


def text_under(body: bytes, pages: list[dict[str, Any]]) -> str:
    """The characters whose middle lies in a box, by PDFium's own view of the page."""
    found = ""
    with pdfium.PdfDocument(body) as document:
        for boxed in pages:
            with page_at(document, boxed["page"] - 1) as shown, closing(shown.get_textpage()) as text_page:
                found += _under(shown, text_page, boxed)
    return found


def _under(shown: pdfium.PdfPage, text_page: pdfium.PdfTextPage, boxed: dict[str, Any]) -> str:
    size = round(boxed["width"] * 100), round(boxed["height"] * 100)
    characters = []
    for index in range(text_page.count_chars()):
        left, bottom, right, top = text_page.get_charbox(index, loose=True)
        characters.append((chr(pdfium.raw.FPDFText_GetUnicode(text_page, index)), left + right, bottom + top))
    found = ""
    for box in boxed["boxes"]:
        corners = []
        for x, y in ((box["x"], box["y"]), (box["x"] + box["width"], box["y"] + box["height"])):
            across, up = c_double(), c_double()
            pdfium.raw.FPDF_DeviceToPage(
                shown, 0, 0, *size, 0, round(x * 100), round(y * 100), byref(across), byref(up)
            )
            corners.append((across.value, up.value))
        (left, right), (low, high) = (sorted(side) for side in zip(*corners, strict=True))
        found += "".join(c for c, x, y in characters if left <= x / 2 <= right and low <= y / 2 <= high)
    return found


def test_boxes_lie_on_the_words_of_every_citation(client: Client, ingest: IngestParts):
    """Every third sentence of the sample, as citations give them: characters of the document's text."""
    document_id = added(client, ingest, SAMPLE)
    cited = [
        (chunk["start"] + place[0], chunk["start"] + place[1], chunk["text"][slice(*place)])
        for chunk in chunks(client, document_id)
        for place in sentences(chunk["text"])
    ][::4]
    assert len(cited) >= 20
    for start, end, text in cited:
        found = boxes(client, document_id, start, end)

        assert found["problem"] is None
        assert words(text_under(SAMPLE, found["pages"])) == words(text)


def test_a_sentence_over_two_pages_has_boxes_on_both(client: Client, ingest: IngestParts):
    body = pdf([["Heading", "The dragon sleeps under"], ["the mountain of glass."]])
    document_id = added(client, ingest, body)
    text = "Heading\nThe dragon sleeps under\n\nthe mountain of glass."
    found = boxes(client, document_id, text.index("The dragon"), len(text))

    assert [page["page"] for page in found["pages"]] == [1, 2]
    assert words(text_under(body, found["pages"])) == "Thedragonsleepsunderthemountainofglass."


def test_words_that_stand_there_twice_are_told_apart(client: Client, ingest: IngestParts):
    body = pdf([["Ducks swim.", "Geese fly.", "Ducks swim."]])
    document_id = added(client, ingest, body)
    first, second = (boxes(client, document_id, at, at + 11)["pages"][0]["boxes"][0] for at in (0, 23))

    assert first["y"] < second["y"]


def test_a_turned_and_cut_page_has_boxes_where_it_shows_the_words(client: Client, ingest: IngestParts):
    body = page(stream(b"BT /F1 12 Tf 50 700 Td (Words of wisdom) Tj ET"), ROTATED + FONTS)
    document_id = added(client, ingest, body)
    (shown,) = boxes(client, document_id, 0, 5)["pages"]
    png = client.get(f"{shown['picture']}?width={round(shown['width'])}")
    picture = Image.open(BytesIO(png.content)).convert("L")
    (box,) = shown["boxes"]
    inside = picture.crop((box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"]))

    assert (shown["width"], shown["height"]) == (700, 360)
    assert inside.getextrema()[0] < 100, "ink under the box"
    assert words(text_under(body, [shown])) == "Words"


def ink_under(client: Client, page: dict[str, Any]) -> list[bool]:
    """For each box of a page, whether there is ink in it, and white to the left and right of the line's other words."""
    png = client.get(f"{page['picture']}?width={round(page['width'])}").content
    shown = Image.open(BytesIO(png)).convert("L")
    return [
        shown.crop((box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"])).getextrema()[0] < 128
        for box in page["boxes"]
    ]


def test_boxes_of_scans_lie_on_the_cited_words_beside_pages_with_text(client: Client, ingest: IngestParts):
    """One citation begins on a page with a text layer and ends on a scan that lies on its side."""
    first = "The first page has a text layer."
    document_id = added(client, ingest, scanned_pdf([first, picture(DRAGON, degrees=90), picture(GEESE)]))
    text = "\n\n".join([first, "\n".join(DRAGON), "\n".join(GEESE)])
    start, end = text.index("a text layer"), text.index("sleeps")
    found = boxes(client, document_id, start, end)

    assert found["problem"] is None and found["num_pages"] == 3
    assert [page["page"] for page in found["pages"]] == [1, 2]
    scan = found["pages"][1]
    (box,) = scan["boxes"]
    assert (scan["width"], scan["height"]) == (100, 240)
    assert box["width"] < 20 and 40 < box["height"] < 90, "two words of a line that runs down"
    assert ink_under(client, scan) == [True]
    assert [c["page"] for c in chunks(client, document_id)] == [1]


def test_an_image_shows_its_page_with_the_cited_words(client: Client, ingest: IngestParts):
    frames = encoded(picture(DRAGON), "TIFF", save_all=True, append_images=[picture(GEESE)])
    document_id = added(client, ingest, frames, "scan.tiff")
    text = "\n".join(DRAGON) + "\n\n" + "\n".join(GEESE)
    (page,) = boxes(client, document_id, text.index("autumn"), text.index(" back"))["pages"]

    assert (page["page"], page["width"], page["height"]) == (2, 480, 200)
    assert len(page["boxes"]) == 2 and all(ink_under(client, page))
    assert page["boxes"][0]["x"] > 200 and page["boxes"][1]["x"] < 100
    assert_problem(client.get(f"/v1/documents/{document_id}/pages/3"), 404, "there is no page 3")


def test_what_was_made_of_a_scan_goes_with_its_file(client: Client, ingest: IngestParts, parts: Parts):
    document_id = added(client, ingest, encoded(picture(DRAGON)), "scan.png")
    assert [path.suffix for path in parts.files.folder.glob("*/??/*.made")] == [".made"]
    next(parts.files.folder.glob("*/??/*.made")).write_bytes(b"damaged")
    assert "not all of the words were found" in boxes(client, document_id, 0, 10)["problem"]

    client.delete(f"/v1/documents/{document_id}")
    assert not list(parts.files.folder.glob("*/??/*"))


def test_a_page_is_drawn_as_wide_as_asked_for(client: Client, ingest: IngestParts):
    document_id = added(client, ingest, pdf([["words"], ["more words"]]))
    for width in (300, 1000, 300):
        response = client.get(f"/v1/documents/{document_id}/pages/2", params={"width": width})

        assert response.headers["content-type"] == "image/png"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert abs(Image.open(BytesIO(response.content)).width - width) <= 1


def test_what_is_not_there_is_not_found(client: Client, ingest: IngestParts, parts: Parts):
    document_id = added(client, ingest, pdf([["words"]]))
    for number in (0, 2, 10**6, 10**30, -(10**30)):
        assert_problem(client.get(f"/v1/documents/{document_id}/pages/{number}"), 404, f"there is no page {number}")
    assert_problem(client.get(f"/v1/documents/{'0' * 32}/pages/1"), 404)
    stranger = {"Authorization": f"Bearer {issue_key_by_name('stranger', 'x', ['read'], parts.database).key}"}
    for path in ("pages/1", "boxes?start=0&end=5"):
        assert_problem(client.get(f"/v1/documents/{document_id}/{path}", headers=stranger), 404, "no document")


def test_what_cannot_be_drawn_says_why(client: Client, subtests: pytest.Subtests):
    for name, body, reason in [
        ("a.pdf", b"%PDF-1.7\n" + bytes(range(256)) * 8 + b"\n%%EOF", "damaged"),
        (
            "a.pdf",
            pdf([["words"]], trailer="/Encrypt << /Filter /Standard /V 4 /R 4 /O (a) /U (b) /P 1 >>"),
            "password",
        ),
        ("a.pdf", page(stream(b"q Q"), FONTS).replace(b"595 842", b"99999 99999"), "too small or too large"),
        ("a.md", b"# Words\n\nNo page.", "only pages of PDF files and images"),
    ]:
        with subtests.test(reason):
            document_id = upload(client, body, name).json()["id"]
            for _ in range(2):
                assert_problem(client.get(f"/v1/documents/{document_id}/pages/1"), 422, reason)


def test_a_range_without_text_is_refused(client: Client, ingest: IngestParts):
    document_id = added(client, ingest, pdf([["words"]]))
    for start, end, reason in (
        (5, 5, "start must be before end"),
        (900, 950, "no text"),
        (0, 10_001, "at most 10,000"),
    ):
        params = {"start": start, "end": end}
        assert_problem(client.get(f"/v1/documents/{document_id}/boxes", params=params), 422, reason)


def test_words_of_a_file_that_was_replaced_have_their_boxes_on_its_own_pages(client: Client, ingest: IngestParts):
    """Until the new one is read, its text is the old one's."""
    document_id = added(client, ingest, pdf([["Words that stand here"]]))
    replacing = pdf([["Withdrawn:", "Words that stand here"]])
    client.put(f"/v1/documents/{document_id}", files={"file": ("b.pdf", replacing)})
    before = boxes(client, document_id, 0, 13)
    shown = client.get(f"/admin/documents/{document_id}", params={"at": "0-13"}).text
    assert "Outdated:" in shown and "cited words are highlighted" in shown

    ingest_document(document_id, ingest)
    after = boxes(client, document_id, 0, 9)
    assert before["problem"] is None and after["problem"] is None
    assert before["pages"][0]["boxes"][0]["width"] > after["pages"][0]["boxes"][0]["width"]


def test_a_citation_leads_to_its_words_and_to_no_others_once_the_file_is_replaced(client: Client, ingest: IngestParts):
    document_id = added(client, ingest, pdf([["Ada Lovelace wrote the first program."]]))
    cited, *_ = client.post("/v1/ask", json={"question": "Who wrote the first program?"}).json()["citations"]
    paths = (cited["page_text"], cited["page_boxes"])
    assert client.get(paths[0]).json()["cited"] == cited["quote"]
    assert client.get(paths[1]).json()["problem"] is None
    passage, *_ = client.post("/v1/search", json={"question": "Who wrote the first program?"}).json()["passages"]
    whole = {name: passage[name] for name in ("start", "end", "checksum")}
    assert client.get(f"/v1/documents/{document_id}/text", params=whole).json()["cited"] == passage["text"]
    place, checksum = f"{cited['start']}-{cited['end']}", paths[0].partition("&checksum=")[2]
    assert "<mark" in shown(client, document_id, f"{place}-{checksum}")

    replaced = pdf([["Nobody knows who wrote the second one."]])
    client.put(f"/v1/documents/{document_id}", files={"file": ("b.pdf", replaced)})
    ingest_document(document_id, ingest)
    for path in paths:
        assert_problem(client.get(path), 422, "other words")
        assert client.get(path.partition("&checksum")[0]).status_code == 200
    assert_problem(client.get(f"/v1/documents/{document_id}/text", params=whole), 422, "other words")
    gone = shown(client, document_id, f"{place}-{checksum}")
    assert "no longer here" in gone
    assert "<mark" not in gone
    assert "<mark" in shown(client, document_id, place)


def test_a_citation_leads_to_its_words_after_they_were_read_again_in_smaller_chunks(
    client: Client, parts: Parts, ingest: IngestParts
):
    words = " ".join(f"engine {number} stood in hall {number % 7}," for number in range(6))
    document_id = added(client, ingest, words.encode(), "a.txt")
    path = text_path(document_id, 0, len(words), words)
    assert client.get(path).status_code == 200

    parts.settings = msgspec.structs.replace(parts.settings, chunk_tokens=MIN_CHUNK_TOKENS)
    client.put(f"/v1/documents/{document_id}", files={"file": ("a.txt", words.encode() + b"\n")})
    ingest_document(document_id, ingest)
    assert len(chunks(client, document_id)) > 1
    assert client.get(path).status_code == 200


def views(client: Client) -> PageViews:
    return client.app.dependencies["page_views"].dependency()


def limit_to(seconds: int, client: Client) -> None:
    """Limit the time that a page may take."""
    for parser in views(client)._parsers._parsers:
        parser._limits = msgspec.structs.replace(parser._limits, seconds=seconds)


TOO_MUCH = "it takes more than"
"""Of time, or on a quick machine of memory."""


def slow_pdf(num_pages: int = 1) -> bytes:
    """Pages that take minutes, and more and more memory, and are tiny."""
    kids = b" ".join([b"3 0 R"] * num_pages)
    return forms(7).replace(b"/Count 1 /Kids [3 0 R]", b"/Count %d /Kids [%b]" % (num_pages, kids))


def test_a_page_that_takes_too_long_does_so_once_whatever_width_is_asked_for(client: Client, ingest: IngestParts):
    hostile = upload(client, slow_pdf(), "slow.pdf").json()["id"]
    good = added(client, ingest, pdf([["words"]]))
    limit_to(1, client)

    assert_problem(client.get(f"/v1/documents/{hostile}/pages/1"), 422, TOO_MUCH)
    for width in range(300, 2400, 300):
        response = client.get(f"/v1/documents/{hostile}/pages/1", params={"width": width})
        assert_problem(response, 422, TOO_MUCH)
        assert "no page of the file" not in response.text, "it was not tried again"
    assert client.get(f"/v1/documents/{good}/pages/1").status_code == 200


def test_a_file_is_not_tried_again_once_two_of_its_pages_took_too_long(client: Client):
    hostile = upload(client, slow_pdf(4), "slow.pdf").json()["id"]
    limit_to(1, client)
    for number in (1, 2):
        problem = client.get(f"/v1/documents/{hostile}/pages/{number}")
        assert_problem(problem, 422, TOO_MUCH)
        assert "no page of the file" not in problem.text
    for number in (3, 4):
        assert_problem(client.get(f"/v1/documents/{hostile}/pages/{number}"), 422, "no page of the file is shown")


def test_a_page_that_takes_too_much_memory_is_refused_like_one_that_takes_too_long(client: Client):
    """Far below what a document may take."""
    wide = encoded(Image.new("RGBA", (7000, 7000)))
    hostile = upload(client, wide, "wide.png").json()["id"]

    assert_problem(client.get(f"/v1/documents/{hostile}/pages/1"), 422, "it takes more than 512 MiB")


def test_an_image_of_as_many_pixels_as_a_camera_has_is_shown(client: Client):
    document_id = upload(client, encoded(Image.new("RGB", (8000, 6000))), "photo.png").json()["id"]
    assert client.get(f"/v1/documents/{document_id}/pages/1").status_code == 200


def test_a_page_is_drawn_in_few_widths(client: Client):
    """Pictures of all others are made of these."""
    document_id = upload(client, pdf([["words"]]), "a.pdf").json()["id"]
    for width in (50, 111, 599, 601, 1200, 2000):
        png = client.get(f"/v1/documents/{document_id}/pages/1", params={"width": width}).content
        assert Image.open(BytesIO(png)).width == width
    assert [drawn for _, _, drawn in views(client)._kept._values] == list(WIDTHS)


def test_pages_of_one_tenant_delay_no_others(client: Client, parts: Parts):
    """Red asks for pages that take as long as they may, at many widths at once."""
    red, blue = (
        {"Authorization": f"Bearer {issue_key_by_name(name, 'x', ['write'], parts.database).key}"}
        for name in ("red", "blue")
    )
    hostile = [upload(client, slow_pdf(n), "slow.pdf", headers=red).json()["id"] for n in (1, 2)]
    harmless = upload(client, pdf([["words"]] * 12), "a.pdf", headers=blue).json()["id"]

    def seconds(numbers: range) -> list[float]:
        """The time until blue has each of its pages."""
        times = []
        for number in numbers:
            began = time.monotonic()
            assert client.get(f"/v1/documents/{harmless}/pages/{number}", headers=blue).status_code == 200
            times.append(time.monotonic() - began)
        return times

    alone = seconds(range(1, 7))
    with ThreadPoolExecutor(12) as threads:
        asked = [
            threads.submit(client.get, f"/v1/documents/{document_id}/pages/1?width={width}", headers=red)
            for width in (300, 700, 1300, 2000)
            for document_id in hostile
        ]
        wait(asked, timeout=0.3)
        beside = seconds(range(7, 13))
        assert not all(answer.done() for answer in asked), "red is busy all the time"
        for answer in asked:
            assert_problem(answer.result(), 422, "it takes more than")
    assert max(beside) < max(alone) + 1


def test_pictures_are_kept_within_their_bound():
    kept = _Kept[bytes](100)
    for number in range(1, 5):
        kept.keep((Path("a"), number, 1), b"png", 40)
    kept.keep((Path("a"), 4, 1), b"png", 60)

    assert [kept.get((Path("a"), number, 1)) is None for number in range(1, 5)] == [True, True, False, False]


def test_pictures_of_deleted_documents_leave_memory(client: Client, ingest: IngestParts):
    page_views = client.app.dependencies["page_views"].dependency()
    deleted, other = (added(client, ingest, pdf([[word]])) for word in ("words", "others"))
    for document_id in (deleted, other):
        assert client.get(f"/v1/documents/{document_id}/pages/1").status_code == 200
    assert client.delete(f"/v1/documents/{deleted}").status_code == 204
    page_views.forget_deleted()

    assert len(page_views._kept._values) == 1
    assert client.get(f"/v1/documents/{other}/pages/1").status_code == 200


def test_pictures_leave_memory_once_they_are_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ingest.page_views.KEPT_S", -1.0)
    kept = _Kept[bytes](100)
    kept.keep((tmp_path, 1, 1), b"png", 60)
    kept.forget_deleted()

    assert (len(kept._values), kept._total) == (0, 0)
