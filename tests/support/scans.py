"""Pictures of text, and PDF files whose pages are such pictures, drawn here."""

from collections.abc import Sequence
from io import BytesIO

from PIL import Image, ImageDraw, ImageFont

from tests.support.made_files import FONT, pdf_of

DRAGON = ["The dragon sleeps under", "the mountain of glass."]
GEESE = ["Geese fly south in autumn", "and come back in spring."]


def picture(
    lines: Sequence[str], size: tuple[int, int] = (480, 200), degrees: int = 0, points: int = 24
) -> Image.Image:
    """Black lines of text on white, turned clockwise."""
    image = Image.new("RGB", size, "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(points)
    for number, line in enumerate(lines):
        pen.text((40, 40 + 2 * points * number), line, fill="black", font=font)
    return image.rotate(-degrees, expand=True)


def encoded(image: Image.Image, format_: str = "PNG", **options: object) -> bytes:
    file = BytesIO()
    image.save(file, format_, **options)
    return file.getvalue()


def scanned_pdf(pages: Sequence[Image.Image | str], rotate: int = 0) -> bytes:
    """A page for each picture, and for each line of text one that has a text layer."""
    kids = " ".join(f"{4 + 3 * n} 0 R" for n in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>".encode(),
        FONT,
    ]
    for number, page in enumerate(pages):
        at = 4 + 3 * number
        if isinstance(page, str):
            content, image = f"BT /F1 12 Tf 50 700 Td ({page}) Tj ET".encode(), b"<< >>"
            width, height = 595, 842
        else:
            width, height = (side // 2 for side in page.size)
            content, jpeg = f"q {width} 0 0 {height} 0 0 cm /I1 Do Q".encode(), encoded(page, "JPEG")
            image = (
                b"<< /Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceRGB /BitsPerComponent 8 "
                b"/Filter /DCTDecode /Length %d >>\nstream\n%b\nendstream" % (*page.size, len(jpeg), jpeg)
            )
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} {height}] /Rotate {rotate} /Resources "
            f"<< /Font << /F1 3 0 R >> /XObject << /I1 {at + 2} 0 R >> >> /Contents {at + 1} 0 R >>".encode(),
            b"<< /Length %d >>\nstream\n%b\nendstream" % (len(content), content),
            image,
        ]
    return pdf_of(objects)
