"""What a reader calls a page."""

from ingest.parse.sniff import Format
from ragkv.text import PAGE_NAMES, page_label


def test_presentations_have_slides_and_workbooks_sheets():
    named = {kind: page_label(kind.value, 3) for kind in Format if kind.value in PAGE_NAMES}

    assert named == {
        Format.PPTX: "slide 3", Format.ODP: "slide 3", Format.XLSX: "sheet 3", Format.ODS: "sheet 3",
    }  # fmt: skip
    assert len(named) == len(PAGE_NAMES)
    assert page_label(Format.PDF.value, 3) == "page 3"
    assert page_label(Format.PPTX.value, None) is None
