"""Text that arrives in pieces, without leading and trailing white space."""


class Trimmed:
    """Takes pieces and gives them on: joined, what it gave is `text`, and offsets into `text` hold for it."""

    def __init__(self) -> None:
        self.text = ""
        self._held = ""

    def add(self, piece: str) -> str:
        """The next part of the text, empty if there is none yet: white space is held back until something follows."""
        text = self._held + piece if self.text else piece.lstrip()
        part = text.rstrip()
        self._held = text[len(part) :]
        self.text += part
        return part
