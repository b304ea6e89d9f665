"""Language detection by function words: short, frequent words that occur in all running text.

Each script is judged by itself, as a page in Arabic may quote English. A text with too few function words for a
verdict (a table, a list of names, a question of three words) has no known language. Serbian stands for Croatian and
Bosnian too. Languages without a Snowball stemmer are not told.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import StrEnum

MIN_FUNCTION_WORDS = 3
"""Function words of a language without which a text is not taken to be written in it."""


OTHER_SHARE = 5
"""A text with at most this many English function words to one of another language is in the other language."""


class Script(StrEnum):
    """Scripts of the languages below; OTHER is any other, and digits."""

    LATIN = "latin"
    GREEK = "greek"
    CYRILLIC = "cyrillic"
    ARMENIAN = "armenian"
    HEBREW = "hebrew"
    ARABIC = "arabic"
    DEVANAGARI = "devanagari"
    TAMIL = "tamil"
    OTHER = "other"


Language = str
"""The name of a Snowball stemmer."""

DEFAULT: Language = "english"
"""The language of what has none."""

_BLOCKS = (
    (0x0041, 0x0250, Script.LATIN),
    (0x0370, 0x0400, Script.GREEK),
    (0x0400, 0x0530, Script.CYRILLIC),
    (0x0530, 0x0590, Script.ARMENIAN),
    (0x0590, 0x0600, Script.HEBREW),
    (0x0600, 0x0780, Script.ARABIC),
    (0x0900, 0x0980, Script.DEVANAGARI),
    (0x0B80, 0x0C00, Script.TAMIL),
    (0x1E00, 0x1F00, Script.LATIN),
    (0x1F00, 0x2000, Script.GREEK),
)

_FUNCTION_WORDS: dict[Script, dict[Language, str]] = {
    Script.LATIN: {
        "english": """a about above after again against all also am an and any are as at be because been before being below
            between both but by can could did do does doing down during each few for from further had has have having he
            her here hers herself him himself his how i if in into is it its itself just me more most my myself no nor not
            now of off on once only or other our ours ourselves out over own same she should so some such than that the
            their theirs them themselves then there these they this those through to too under until up very was we were
            what when where which while who whom whose why will with would you your yours yourself yourselves s t d ll m re
            ve""",
        "basque": "eta da ez du bat dira egin ere dute hau izan zen baina edo dituzte beste hori duen dago bere",
        "catalan": "el la els les de del dels un una i en que és per amb no es al com més aquest aquesta són o si pel als ha",
        "czech": "a v na se je z do s o k že to i pro ve jako po za by od nebo který která při jsou aby tak jeho byl může",
        "danish": "og i at det som en et på er af for med den til ikke om de har kan eller fra du var ved sig når skal blev",
        "dutch": "de het een en van in is op te dat die met voor zijn niet aan er om ook als bij naar uit door deze wordt kan of u",
        "esperanto": "kaj la de en al estas por kiu kiuj ne ke el kun sed ili li tio estis pri per ĝi oni",
        "estonian": "ja on ei et see mis kui ka oma või oli selle ning seda kas aga nii siis kes saab",
        "finnish": "ja on ei se että ovat oli joka tai kun myös mutta voi jos kuin sen ole hän niin tämä jotka vain voit "
        "ne tämän siitä sitä voidaan kuten sekä jonka",
        "french": "le la les de des du un une et est en dans que qui pour sur par avec pas ce il au aux plus ne se sont vous cette ou l d qu n s c j",
        "german": "der die das und ist von zu den mit im in dem des ein eine einer nicht auf für als sich auch es an werden wird oder "
        "bei aus nach wie sie sind kann wenn wurde dass",
        "hungarian": "a az és hogy nem is egy van meg csak ha vagy mint ez azt kell volt sem már lehet ezt",
        "indonesian": "dan yang di dari untuk dengan ini pada adalah dalam tidak ke itu akan atau oleh dapat juga anda sebagai",
        "irish": "agus an na ar ag do go a ní bhí tá sé seo sin nach don leis bhfuil raibh",
        "italian": "il lo la i gli le di del della dei delle un una e che in per con non si da al alla nel nella sono come più è",
        "lithuanian": "ir yra į kad iš su ar bet kaip tai ne o nuo per buvo jo prie arba už iki apie",
        "norwegian": "og i å det som en et på er av for med den til ikke om de har kan eller fra du var ved seg når skal ble",
        "polish": "i w na z do nie się jest to że o jak po od za przez dla co ale lub oraz był tym który może są",
        "portuguese": "o a os as de do da dos das um uma e em que no na nos nas para com não se por mais ao como foi ou é são",
        "romanian": "și de în la cu pe un o este care din nu să pentru al ale mai ce sau fi sunt a fost prin",
        "serbian": "i je u da se na za su od sa kao ne ili koji koja bi ali iz to biti nije",
        "spanish": "el la los las de del un una y en que es por para con se no su al lo como más este esta son o si fue",
        "swedish": "och i att det som en ett på är av för med den till inte om de har kan eller från du var vid sig när ska",
        "turkish": "ve bir bu için ile de da olarak olan çok daha gibi en veya ancak sonra kadar var değil her ise",
    },
    Script.GREEK: {"greek": "και το να του της η ο την με για από στο που είναι τα οι δεν σε θα ή ένα μια στην"},
    Script.CYRILLIC: {
        "russian": "и в на не что с по это как для из к от у за он его но или при вы если был которые может",
        "serbian": "и је у да се на за су од са као не или који која би али из то бити није",
    },
    Script.ARMENIAN: {"armenian": "և է են որ մեջ համար են այս ու հետ նաև կամ մի իր ոչ էր"},
    Script.HEBREW: {"yiddish": "און די דער איז אין פון צו מיט דאס אויף אז נישט האט ער זיי וואס דעם"},
    Script.ARABIC: {
        "arabic": "في من على إلى أن التي الذي هذا هذه ذلك مع عن هو هي لا ما كان كل أو ثم بين كما قد لم إن عند بعد",
        "persian": "و در به از که این را با است برای آن یک خود تا بر یا هم می شود شما کنید",
    },
    Script.DEVANAGARI: {
        "hindi": "के का की में है से को और पर यह हैं एक कि नहीं लिए ने इस या हो आप भी",
        "nepali": "को र मा छ हो का लाई ले यो पनि भने गर्न छन् एक वा गरेको तथा",
    },
    Script.TAMIL: {"tamil": "மற்றும் ஒரு இந்த அல்லது என்று இது உள்ள உங்கள் அந்த நீங்கள் என என்ற இருந்து"},
}

LANGUAGES: dict[Script, tuple[Language, ...]] = {script: tuple(lists) for script, lists in _FUNCTION_WORDS.items()}
"""The languages that can be told, by script."""

_WORDS_OF = {
    (script, language): frozenset(words.casefold().split())
    for script, lists in _FUNCTION_WORDS.items()
    for language, words in lists.items()
}
_ENGLISH = (Script.LATIN, DEFAULT)

STOP_WORDS: dict[Language, frozenset[str]] = {
    language: frozenset().union(*(words for (_, other), words in _WORDS_OF.items() if other == language))
    for _, language in _WORDS_OF
}
"""The function words of each language, lower-case. They say little of what a text is about."""

_TELLING: dict[str, list[tuple[Script, Language]]] = defaultdict(list)
"""The languages that a word speaks for. What is an English word too speaks for English alone."""
for _key, _words in _WORDS_OF.items():
    for _word in _words if _key == _ENGLISH else _words - _WORDS_OF[_ENGLISH]:
        _TELLING[_word].append(_key)


def script_of(word: str) -> Script:
    """The script of a word's first character."""
    if word.isascii():
        return Script.LATIN if word[0].isalpha() else Script.OTHER
    code = ord(word[0])
    return next((script for start, end, script in _BLOCKS if start <= code < end), Script.OTHER)


def languages_of(words: Iterable[str]) -> dict[Script, Language]:
    """The language of each script's words, lower-case, where their function words tell it.

    A text in English and another language has the other, if that has a share in it: everything is searchable as
    English.
    """
    counts = Counter(words)
    distinct: Counter[tuple[Script, Language]] = Counter()
    hits: Counter[tuple[Script, Language]] = Counter()
    for word in _TELLING.keys() & counts.keys():
        for key in _TELLING[word]:
            distinct[key] += 1
            hits[key] += counts[word]
    languages = sorted(
        (hits[key], key) for key, number in distinct.items() if number >= MIN_FUNCTION_WORDS and key != _ENGLISH
    )
    language_of = {Script.LATIN: DEFAULT} if distinct[_ENGLISH] >= MIN_FUNCTION_WORDS else {}
    for number, (script, language) in languages:  # the last one of a script, with most hits, stays
        if script is not Script.LATIN or number * OTHER_SHARE >= hits[_ENGLISH]:
            language_of[script] = language
    return language_of
