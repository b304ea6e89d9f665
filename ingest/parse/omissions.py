"""Counts of what is left out of a document's text."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Words that the author hid, and characters of pictures and other files that were written as text (base64)."""

    hidden_words: int = 0
    encoded_chars: int = 0


class Omissions:
    """Counts what readers leave out of one document. keeps_hidden: words that the author hid are read like others."""

    def __init__(self, *, keeps_hidden: bool = False) -> None:
        self.keeps_hidden = keeps_hidden
        self._hidden_words = 0
        self._encoded_chars = 0

    def leaves_out(self, text: str) -> bool:
        """Whether a text that the author hid is not read. Its words are counted then."""
        if not self.keeps_hidden:
            self._hidden_words += len(text.split())
        return not self.keeps_hidden

    def hidden(self, text: str) -> str:
        """The part of a text that is read although the author hid it: all of it or, counted, none."""
        return "" if self.leaves_out(text) else text

    def encoded(self, num_chars: int) -> None:
        """Count characters that are no text but an encoded file."""
        self._encoded_chars += num_chars

    def include(self, left_out: LeftOut) -> None:
        """Count what was left out of a part of the document that was read separately."""
        self._hidden_words += left_out.hidden_words
        self._encoded_chars += left_out.encoded_chars

    @property
    def left_out(self) -> LeftOut:
        return LeftOut(self._hidden_words, self._encoded_chars)
