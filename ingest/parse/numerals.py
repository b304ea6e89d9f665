"""Numbers as letters and Roman numerals."""

from string import ascii_lowercase

_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
    (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
_LARGEST_ROMAN = 3_999


def roman(number: int) -> str:
    """The number in Roman numerals, in small letters, or in digits where they have none for it."""
    if not 0 < number <= _LARGEST_ROMAN:
        return str(number)
    numeral = ""
    for value, letters in _ROMAN:
        count, number = divmod(number, value)
        numeral += letters * count
    return numeral


def letters(number: int) -> str:
    """The number as letters: a, b, ... z, aa, ab, ...; in digits where it is not above 0."""
    if number <= 0:
        return str(number)
    word = ""
    while number:
        number, place = divmod(number - 1, len(ascii_lowercase))
        word = ascii_lowercase[place] + word
    return word
