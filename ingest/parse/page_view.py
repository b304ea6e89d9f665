"""Pages of a document as they look, for every format that has pages to show."""

from ingest.parse.image import draw_image, locate_in_image
from ingest.parse.pdf_page import draw_pdf, locate_in_pdf
from ingest.parse.quotes import Drawing, Located, Locating, Picture
from ingest.parse.scan import ScannedPage
from ingest.parse.sniff import image_format


def draw(body: bytes, drawing: Drawing) -> Picture:
    """The picture of a page, of at most MAX_PIXELS. Raises NotFound for a page that does not exist, and Rejected."""
    return draw_image(body, drawing) if image_format(body) else draw_pdf(body, drawing)


def locate(body: bytes, locating: Locating, scans: tuple[ScannedPage, ...]) -> Located:
    """The boxes of quotes on pages; `scans` has the lines of those that were read by OCR.

    Raises NotFound if there is no first page, and Rejected for a file that cannot be read.
    """
    return locate_in_image(body, locating, scans) if image_format(body) else locate_in_pdf(body, locating, scans)
