"""The sentences of a text with their positions."""

import re
from collections.abc import Iterator

MAX_CHARACTERS = 400
"""Text without sentence ends (lists, tables) is cut at line breaks when it runs longer."""

MIN_CHARACTERS_TO_SPACE = 40
"""A sentence in Thai or Lao ends at the first space after as many characters: shorter phrases belong together."""

_PARAGRAPH_END = re.compile(r"\n\s*\n")
_LINE_END = re.compile(r"\n")
_LIST_NUMBER = re.compile(r"^[ \t]*\d{1,3}[.)](?=[ \t]+[^\sa-z])", re.MULTILINE)
_NUMBER_IN_LINE = re.compile(r"\d{1,3}[.)][ \t]")
_NUMBER_AT_END = re.compile(r"(?<!\S)(\d{1,3})[.)]\s*\Z")
_SENTENCE_END = re.compile(r"""[.!?…؟۔।]["'”’)\]»]*(?=\s+["'“‘(\[«„]*[^\sa-z])|[。！？។៕။][」』）]*""")
# Thai and Lao have no mark at the end of a sentence, but a space; one before a sign of repetition or omission ends
# nothing.
_PHRASE_END = re.compile(r"(?<=[\u0e00-\u0eff])[^\S\n]+(?=[\u0e00-\u0eff])(?![ๆฯໆຯ])")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(.])(?:[A-Za-z]|Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|Gen|Col|Lt|Capt|Rev|Hon|Mt|vs|ca|cf|al|fl"
    r"|Nr|Abs|Bd|Hr|Str|bzw|vgl|Mme|Mlle|Sra|Dra|art|núm"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.$"
)
_BEFORE_NUMBER = re.compile(r"(?:^|[\s(.])(?:Nos?|Figs?|Eqs?|Vol|Ch|Sec)\.$")

Place = tuple[int, int]


def sentences(text: str) -> list[Place]:
    """[start, end) of each sentence in order, without the white space around it; none is empty."""
    return _sentences_within(text, (0, len(text)))


def statements(answer: str) -> list[Place]:
    """The sentences of an answer, none with the number of an item of a list.

    Not for passages: their lines may be wrapped, and one that begins with a number may go on with a sentence.
    """
    last = _NUMBER_AT_END.search(answer)
    if last and re.search(rf"(?<!\S){int(last[1]) - 1}[.)]\s", answer):
        answer = answer[: last.start()]  # the number of an item that was not written
    items = _split(answer, (0, len(answer)), _LIST_NUMBER)
    places = [place for item in items for place in _sentences_within(answer, item)]
    return [(start, end) for start, end in places if not _NUMBER_IN_LINE.fullmatch(answer, start, end + 1)]


def _sentences_within(text: str, place: Place) -> list[Place]:
    places = (
        part for paragraph in _split(text, place, _PARAGRAPH_END) for part in _sentences_of_paragraph(text, paragraph)
    )
    phrases = (
        phrase
        for place in places
        for part in (_split(text, place, _LINE_END) if place[1] - place[0] > MAX_CHARACTERS else [place])
        for phrase in _split(text, part, _PHRASE_END, MIN_CHARACTERS_TO_SPACE)
    )
    unindented = ((end, text[start:end].lstrip()) for start, end in phrases)
    return [(end - len(part), end - len(part) + len(part.rstrip())) for end, part in unindented if part]


def _sentences_of_paragraph(text: str, place: Place) -> Iterator[Place]:
    start = place[0]
    for match in _SENTENCE_END.finditer(text, *place):
        ahead, behind = text[max(start, match.start() - 6) : match.start() + 1], text[match.end() : match.end() + 2]
        if _ABBREVIATION.search(ahead) or (behind.strip().isdigit() and _BEFORE_NUMBER.search(ahead)):
            continue
        yield start, match.end()
        start = match.end()
    yield start, place[1]


def _split(text: str, place: Place, at: re.Pattern[str], min_characters: int = 0) -> Iterator[Place]:
    start = place[0]
    for match in at.finditer(text, *place):
        if match.start() - start >= min_characters:
            yield start, match.start()
            start = match.end()
    yield start, place[1]
