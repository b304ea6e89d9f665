"""Parser for images: their text is read by OCR. Each frame of a TIFF is a page; of other formats only the first
frame is read."""

import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from io import BytesIO

from PIL import Image, ImageOps

from ingest.parse.composer import Composer
from ingest.parse.parsed import MAX_PAGES, Omissions, Parsed
from ingest.parse.quotes import (
    MAX_POINTS,
    Drawing,
    Located,
    Locating,
    Picture,
    check_page,
    drawing_scale,
    find_quotes,
    letters_of_scan,
    pages_to_search,
)
from ingest.parse.scan import OCR, PagePicture, ScannedPage
from ingest.parse.sniff import Format
from ragkv.errors import Rejected, TooLarge, Unsupported

for _name in ("Bmp", "Gif", "Jpeg", "Mpo", "Png", "Tiff", "WebP"):  # now, as nothing can be when a document is read
    import_module(f"PIL.{_name}ImagePlugin")
_FORMATS = {
    "BMP": Format.BMP,
    "GIF": Format.GIF,
    "JPEG": Format.JPEG,
    "MPO": Format.JPEG,  # a camera's JPEG with a second picture behind it
    "PNG": Format.PNG,
    "TIFF": Format.TIFF,
    "WEBP": Format.WEBP,
}
_OPENED = [name for name in _FORMATS if name != "MPO"]  # opened as JPEG
_DAMAGE = (OSError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, struct.error)
_DAMAGED = "it is an image that is damaged or cut short: save or download it again"
_SIXTEEN_BITS = 256


def read_image(body: bytes, fallback_title: str, ocr: OCR, omissions: Omissions) -> Parsed:
    """The recognised text. Raises Rejected for images that are damaged or too large, and where there is no OCR."""
    with _opened(body) as image:
        total = _num_pages(image)
        if ocr.refusal:
            raise Unsupported(f"it is an image: {ocr.refusal}")
        composer, scans = Composer(), []
        for page in ocr.read(range(1, total + 1), partial(_picture, image)):
            composer.page()
            composer.block(page.text)
            scans.append(page.scan)
        parsed = composer.parsed(fallback_title, _FORMATS[str(image.format)])
    return replace(parsed, scans=tuple(scans))


def draw_image(body: bytes, drawing: Drawing) -> Picture:
    """The picture of a page. Raises NotFound for a page that does not exist, and Rejected."""
    with _opened(body) as image:
        check_page(drawing.number, _num_pages(image))
        picture = _page(image, drawing.number)
        scale = min(1.0, drawing_scale(drawing, *picture.size))
        if scale < 1:
            picture = picture.resize([max(round(side * scale), 1) for side in picture.size], Image.Resampling.BOX)
        return Picture(*picture.size, picture.tobytes())


def locate_in_image(body: bytes, locating: Locating, scans: tuple[ScannedPage, ...]) -> Located:
    """The boxes of quotes on pages, whose lines `scans` has. Raises NotFound if there is no first page, and
    Rejected."""
    by_number = {page.number: page for page in scans}
    with _opened(body) as image:
        num_pages = _num_pages(image)
        pages = [
            letters_of_scan(by_number.get(number) or ScannedPage(number, *_picture(image, number)[1:3], ()))
            for number in pages_to_search(locating, num_pages)
        ]
    return find_quotes(pages, num_pages, locating.quotes)


@contextmanager
def _decoding() -> Iterator[None]:
    """Raise Rejected for what the decoders say of an image."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise _too_large() from None
    except _DAMAGE:
        raise Rejected(_DAMAGED) from None


def _opened(body: bytes) -> Image.Image:
    """The image, of which nothing but its head is decoded."""
    with _decoding():
        return Image.open(BytesIO(body), formats=_OPENED)


@_decoding()
def _num_pages(image: Image.Image) -> int:
    num_pages = int(getattr(image, "n_frames", 1)) if image.format == "TIFF" else 1
    if num_pages > MAX_PAGES:
        raise TooLarge(f"it has {num_pages:,} pages, the limit is {MAX_PAGES:,}: split it")
    return num_pages


@_decoding()
def _page(image: Image.Image, number: int) -> Image.Image:
    """A page as it is shown: upright, on white, in red, green and blue. It may be the image itself: a copy of a large
    one takes 350 MB."""
    if number > 1:
        image.seek(number - 1)
    if image.width * image.height > (Image.MAX_IMAGE_PIXELS or 0):
        raise _too_large()
    ImageOps.exif_transpose(image, in_place=True)
    shown: Image.Image = image
    if shown.mode.startswith("I"):  # 16 bits a pixel
        shown = shown.convert("I").point(lambda value: value * (1 / _SIXTEEN_BITS)).convert("L")
    if shown.has_transparency_data:
        shown = shown.convert("RGBA")
        shown = Image.alpha_composite(Image.new("RGBA", shown.size, "white"), shown)
    shown.load()
    return shown if shown.mode == "RGB" else shown.convert("RGB")


def _picture(image: Image.Image, number: int) -> PagePicture:
    """A page, a pixel a point unless it is longer than pages may be."""
    picture = _page(image, number)
    pixels_a_point = max(1.0, max(picture.size) / MAX_POINTS)
    return PagePicture(picture, picture.width / pixels_a_point, picture.height / pixels_a_point, pixels_a_point)


def _too_large() -> TooLarge:
    return TooLarge(f"it has more than {Image.MAX_IMAGE_PIXELS:,} pixels: make it smaller, or cut it into pages")
