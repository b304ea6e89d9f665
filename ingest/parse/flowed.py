"""Lines of mail that were broken to be sent (format=flowed, RFC 3676) become paragraphs."""

_SIGNATURE = "-- "


def unflow(text: str, *, deletes_spaces: bool) -> str:
    """Join each line that ends with a blank to the next of as many quotation marks. deletes_spaces: that blank is no
    part of the text (DelSp)."""
    paragraphs: list[list[str]] = []
    open_depth: int | None = None  # of the line that goes on, if one does
    for line in text.replace("\r\n", "\n").split("\n"):
        quotes = line[: len(line) - len(line.lstrip(">"))]
        words = line[len(quotes) :].removeprefix(" ")
        goes_on = words.endswith(" ") and words != _SIGNATURE
        if goes_on and deletes_spaces:
            words = words[:-1]
        if open_depth == len(quotes) and words and words != _SIGNATURE:
            paragraphs[-1].append(words)
        else:
            paragraphs.append([f"{quotes} {words}" if quotes else words])
        open_depth = len(quotes) if goes_on else None
    return "\n".join(map("".join, paragraphs))
