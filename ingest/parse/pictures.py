"""Descriptions of pictures, written for those who do not see them (alt text)."""

import re

from lxml.etree import _Element

_MAX_CHARS = 1_000
_LEAST_WORDS = 4
_SUFFIX = r"\.(?:png|jpe?g|gif|svg|webp|bmp|tiff?|[ew]mf|heic|avif|ico)(?:[?#]\S*)?"
_PICTURE_FILE = re.compile(rf"{_SUFFIX}\s*\Z", re.IGNORECASE)
_FILE_NAME = re.compile(
    rf"\S*{_SUFFIX}|https?://\S*|[\w-]*\d{{4,}}[\w-]*"
    r"|(?:image|img|picture|pic|photo|bild|grafik|imagen|figure|icon|logo|spacer|untitled|placeholder|screenshot)"
    r"[\s_-]*\d*",
    re.IGNORECASE,
)
_BY_MACHINE = re.compile(r"description automatically generated|automatisch generierte beschreibung", re.IGNORECASE)


def described(alternative: str | None) -> str:
    """A picture's description as text, or nothing where it says no more than the name of a file would."""
    words = " ".join(_BY_MACHINE.split((alternative or "")[:_MAX_CHARS])[0].split())
    says_nothing = _FILE_NAME.fullmatch(words) or not any(map(str.isalpha, words))
    return "" if says_nothing else f"[Picture: {words}]"


def write_descriptions(tree: _Element) -> None:
    """Write the description of each picture of an HTML page in its place. That of a link is no description but the
    name of where it leads, unless this is a picture or it has several words."""
    for picture in tree.iter("img"):
        around, words = picture.getparent(), described(picture.get("alt"))
        is_link = around is not None and around.tag == "a"
        if (
            not is_link
            or words.count(" ") >= _LEAST_WORDS
            or _PICTURE_FILE.search(around.get("href", "")[-_MAX_CHARS:])
        ):
            picture.tag, picture.text = "span", words
