"""Normalisation of a document's characters, as `ragkv.plain_text` does it for documents and questions alike."""

from ragkv.plain_text import PRESENTATION_FORMS, is_scrubbed, scrub, tidy

__all__ = ["PRESENTATION_FORMS", "is_scrubbed", "scrub", "tidy"]
