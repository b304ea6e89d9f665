"""The page of a PDF document or image as it looks, with the place that a citation points to."""

from dataclasses import dataclass

from api.admin.source import Place
from api.v1.pages import problem_of
from ingest.page_views import PageViews
from ingest.parse.quotes import BoxedPage
from ragkv.errors import RagKVError


@dataclass(frozen=True, slots=True)
class Sheet:
    """A page of `num_pages`. `lit`: the pages on which the place has boxes; `problem`: why it has none."""

    page: BoxedPage
    num_pages: int
    lit: tuple[int, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class NoSheet:
    """The reason why a page cannot be shown."""

    problem: str


async def sheet(
    page_views: PageViews, tenant_id: str, document_id: str, number: int | None, place: Place | None
) -> Sheet | NoSheet:
    """Page `number`; without one, the first on which the place has boxes."""
    lit: dict[int, BoxedPage] = {}
    problem = None
    try:
        if place is not None:
            cited = (place.start, place.end, place.checksum)
            located = await page_views.threads.run(page_views.boxes, tenant_id, document_id, *cited)
            problem = problem_of(located)
            lit = {page.number: page for page in located.pages if page.boxes}
            shown = lit.get(number or min(lit, default=0)) or next(
                (page for page in located.pages if number in {None, page.number}), None
            )
            if shown is not None:
                return Sheet(shown, located.num_pages, tuple(lit), problem)
        page, num_pages = await page_views.threads.run(page_views.page, tenant_id, document_id, number or 1)
    except RagKVError as error:
        return NoSheet(str(error))
    return Sheet(page, num_pages, tuple(lit), problem)
