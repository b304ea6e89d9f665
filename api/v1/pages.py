"""Pages of documents: the text around cited words; pictures of PDF documents and images, and boxes over the words."""

import asyncio
from typing import Annotated

import msgspec
from litestar import Response, Router
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from api.access.auth import reading
from api.http.errors import problems
from api.http.files import SANDBOXED
from api.http.methods import get
from ingest.page_views import PageViews
from ingest.parse.quotes import Located
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.documents.cited import CitedPage, cited_page

PIXELS = 1200
_HEADERS = SANDBOXED | {"Cache-Control": "private, max-age=60"}
_NOT_FOUND = "No such document or page, or its file is missing."
_OTHER_WORDS = "the words there have another checksum"
_NOT_SHOWN = "The file is neither a PDF nor an image, or it is damaged, encrypted or too large to be rendered."

Width = Annotated[int, QueryParameter(ge=50, le=2400, description="Maximum width of the picture in pixels.")]
Offset = Annotated[int, QueryParameter(ge=0, le=1_000_000_000, description="Character of the document's text.")]
Checksum = Annotated[
    str | None,
    QueryParameter(
        pattern="^[0-9a-f]{8}$",
        description="Checksum of the words, as in the paths of citations: the request is refused if the words have changed since.",
    ),
]


class BoxView(msgspec.Struct, frozen=True):
    """A rectangle on a page, in points from the upper left corner; a point of an image is a pixel."""

    x: Annotated[float, "Distance from the left edge of the page."]
    y: Annotated[float, "Distance from the upper edge of the page."]
    width: Annotated[float, "Width of the box."]
    height: Annotated[float, "Height of the box."]


class PageBoxes(msgspec.Struct, frozen=True):
    """A page on which words were found."""

    page: Annotated[int, "Number of the page, starting from 1."]
    picture: Annotated[str, "Path of the page's picture."]
    width: Annotated[float, "Width of the page in points."]
    height: Annotated[float, "Height of the page in points."]
    boxes: Annotated[list[BoxView], "Boxes over the words, roughly one per line."]


class BoxesView(msgspec.Struct, frozen=True):
    """Places of a range of a document's text on its pages."""

    pages: Annotated[list[PageBoxes], "Pages on which words of the range were found, in order."]
    num_pages: Annotated[int, "Number of pages of the document."]
    problem: Annotated[str | None, "Reason why some words have no boxes; null if all words have boxes."] = None

    @classmethod
    def of(cls, document_id: str, located: Located) -> "BoxesView":
        pages = [
            PageBoxes(
                page.number,
                f"/v1/documents/{document_id}/pages/{page.number}",
                page.width,
                page.height,
                [BoxView(box.x, box.y, box.width, box.height) for box in page.boxes],
            )
            for page in located.pages
            if page.boxes
        ]
        return cls(pages, located.num_pages, problem_of(located))


def problem_of(located: Located) -> str | None:
    """The reason why words have no boxes; None if all have."""
    if not located.complete:
        return "not all of the words were found on the pages"
    if not any(page.boxes for page in located.pages):
        return "the words lie outside the visible part of the page"
    return None


@get(
    "/pages/{number:int}",
    "Get the picture of a page",
    problems(NOT_FOUND=_NOT_FOUND, UNPROCESSABLE_ENTITY=_NOT_SHOWN),
    reading,
    response_description="The page as PNG.",
    media_type="image/png",
)
async def picture(
    document_id: FromPath[str],
    number: FromPath[int],
    caller: NamedDependency[Caller],
    page_views: NamedDependency[PageViews],
    width: Width = PIXELS,
) -> Response[bytes]:
    """Get a page of a PDF document or image as a picture. Pages are counted from 1; the frames of a TIFF are its
    pages."""
    png = await page_views.threads.run(page_views.picture, caller.tenant_id, document_id, number, width)
    return Response(png, media_type="image/png", headers=_HEADERS)


@get(
    "/boxes",
    "Get the boxes of a citation",
    problems(
        NOT_FOUND=_NOT_FOUND,
        UNPROCESSABLE_ENTITY=f"{_NOT_SHOWN} Or there is no text in the range, or {_OTHER_WORDS}.",
    ),
    reading,
)
async def boxes(
    document_id: FromPath[str],
    start: Offset,
    end: Offset,
    caller: NamedDependency[Caller],
    page_views: NamedDependency[PageViews],
    checksum: Checksum = None,
) -> BoxesView:
    """Get the boxes over characters `start` to `end` of the text of a PDF document or image, by page. Citations carry
    these offsets.

    Words that are not found on the pages exactly as they were read have no boxes: see `problem`. On pages that were
    read by OCR, boxes begin and end about where the words do, since typical widths of letters are assumed.
    """
    located = await page_views.threads.run(page_views.boxes, caller.tenant_id, document_id, start, end, checksum)
    return BoxesView.of(document_id, located)


@get(
    "/text",
    "Get the text around a citation",
    problems(
        NOT_FOUND="No such document.",
        UNPROCESSABLE_ENTITY=f"There is no text in the range, the range is too long, or {_OTHER_WORDS}.",
    ),
    reading,
)
async def text(
    document_id: FromPath[str],
    start: Offset,
    end: Offset,
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    checksum: Checksum = None,
) -> CitedPage:
    """Get characters `start` to `end` of a document's text, with the text of their page, slide or sheet before and
    after them: at most 6,000 characters on either side. Where the format has no pages, it is the text around them.
    """
    return await asyncio.to_thread(cited_page, caller.tenant_id, document_id, start, end, database, checksum)


pages_router = Router("/v1/documents/{document_id:str}", route_handlers=[picture, boxes, text], tags=["documents"])
