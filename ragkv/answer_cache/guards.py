"""Guards of the answer cache: which questions a kept answer may serve, beyond vector similarity.

`differ_in_one_word`: the same question but for one word in the place of another ("increases", "decreases") asks for
something else, whatever the words: vectors tell opposites from synonyms badly. No list is needed for that.

`same_deciding_words`: "Who won in 1998?" and "Who won in 1999?" have nearly the same vector. So do questions that
differ in a name, in a "not", in "when" or "where", or in who did what to whom; and accents, vowel signs and emoji are
nothing to some encoders. The words that decide such things must be the same, in the same order. Deciding words are
known in English, German, French and Spanish, in all their forms. In languages that know no capital letters every word
decides: an answer serves there for the very same words alone.

`is_time_bound`: no earlier answer serves a question whose answer depends on when it is asked. Words of English, German,
French, Spanish, Italian, Portuguese, Dutch, Russian, Chinese and Japanese; a question in another language is not
recognised. A word too many only costs a second answer; a word too few serves an old one.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

from ragkv.characters import ranges
from ragkv.normal_form import normalised
from ragkv.retrieve import sparse
from ragkv.retrieve.languages import languages_of
from ragkv.retrieve.sparse import stem, without_accents

# Vowel signs and tones of many scripts are marks (M), which are no word characters (\w).
_MARKS = ranges(code for code in range(0x300, 0x1F000) if unicodedata.category(chr(code)).startswith("M"))
_SYMBOLS = "#%&*@^" + ranges(
    code for code in range(0x20, 0x1FC00) if unicodedata.category(chr(code)) in ("Sc", "Sm", "So")
)
_LETTERS = rf"\w[\w{_MARKS}]*"
_SYMBOL = re.compile(f"[{_SYMBOLS}]")
_WORD = re.compile(rf"{_LETTERS}(?:[.,:/'\-]{_LETTERS})*|[{_SYMBOLS}]")
# Of bounded length: a mark that opens and is never closed must not be looked for to the end of the text, once for each.
_QUOTED = re.compile(r"[\"“”„«»]([^\"“”«»\n]{1,200})[\"“”«»]|(?<!\w)['‘](.{1,200}?)['’](?!\w)")
_SENTENCE_END = re.compile(r"[.?!:;]\s+$")

_DECIDING_OF = {
    "English": (
        "who whom whose what which when where why how not no never none nobody nothing neither nor without cannot before after "
        "until since first second third fourth fifth sixth seventh eighth ninth tenth last earliest oldest youngest most least "
        "more less fewer higher lower highest lowest larger smaller largest smallest biggest longer shorter longest shortest "
        "best worst maximum minimum max min above below over under all any every only except unless always same different "
        "positive negative true false increase increased decrease decreased rise rose fall fell gain lose win won lost loss "
        "open close start end begin began cause effect mother father son daughter brother sister wife husband parent child "
        "advantages disadvantages pros cons can could may might must should shall will would left right north south east west "
        "buy bought sell sold import export male female zero one two three four five six seven eight nine ten eleven twelve "
        "hundred thousand million billion half twice double "
        "inner outer internal external inside outside indoor outdoor upper top bottom front rear back input output incoming "
        "outgoing full part full-time part-time day night old new young high low long short large small big early late fast slow "
        "hot cold warm hard soft heavy light strong weak thick thin wide narrow deep shallow public private manual automatic "
        "minor major primary secondary domestic foreign national international gross net fixed variable active passive on off "
        "allow allowed permit permitted forbid forbidden prohibit prohibited ban banned legal illegal safe dangerous valid void "
        "required mandatory compulsory optional voluntary employer employee landlord tenant buyer seller lender borrower debtor "
        "creditor plaintiff defendant accept accepted reject rejected refuse refused approve approved deny denied include "
        "included exclude excluded add added remove removed enable enabled disable disabled create created delete deleted "
        "send sent receive received borrow borrowed lend lent teach taught learn learned "
        "succeed success pass passed fail failed failure right rights duty duties benefit benefits risk "
        "risks strength strengths weakness weaknesses credit debit asset assets liability liabilities revenue revenues cost "
        "costs income expense expenses profit profits supply demand arrive arrived arrival "
        "depart departed departure enter entered entrance exit join joined leave leaves lock locked unlock unlocked "
        "guilty innocent rich poor dry wet empty clean dirty cheap expensive easy difficult simple complex loud quiet dead "
        "alive good bad better worse correct wrong present absent near far upstream downstream ancestor descendant predecessor "
        "successor husbands wives king queen prince princess man woman men women boy girl brothers sisters sons daughters "
        "uncle aunt nephew niece grandfather grandmother grandson granddaughter "
        "inbound outbound ascending descending weekday weekend forward backward clockwise counterclockwise anticlockwise "
        "horizontal vertical raise reduce grow shrink expand contract accelerate decelerate strengthen weaken improve worsen "
        "widen upload download push pull install uninstall insert eject attach detach encrypt decrypt encode decode compress "
        "decompress login logout online offline local remote deposit withdraw hire dismiss promote demote supplier customer "
        "sender recipient host guest junior senior adult summer winter spring autumn morning evening odd even convex concave "
        "numerator denominator singular plural freeze thaw heat cool fill drain absorb emit acid alkaline anode cathode "
        "previous next former latter prior subsequent wholesale retail import importer export exporter peak off-peak victory "
        "defeat attack defend birth death marry divorce "
    ),
    "German": (  # "was" is an English word too
        "wer wen wem wessen welche welcher welches welchen welchem wann wo wohin woher warum wieso weshalb wie nicht kein "
        "keine keinen keiner nie niemals ohne vor nach bis seit erste ersten erster erstes zweite zweiten letzte letzten "
        "letzter mehr weniger meisten wenigsten größte größten kleinste kleinsten höchste höchsten niedrigste älteste jüngste "
        "erlaubt verboten zulässig unzulässig gestattet untersagt legal illegal sicher unsicher gültig ungültig pflicht freiwillig "
        "mieter vermieter käufer verkäufer arbeitgeber arbeitnehmer vorteile nachteile richtig falsch gut schlecht "
        "über unter alle jeder nur außer darf kann muss soll wird eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf "
    ),
    "French": (
        "qui que quoi quel quelle quels quelles quand où pourquoi comment combien ne pas jamais sans avant après premier première "
        "autorisé autorisée interdit interdite permis légal légale illégal illégale obligatoire facultatif facultative valable "
        "vendeur acheteur bailleur locataire employeur employé avantages inconvénients vrai faux bon mauvais "
        "deuxième dernier dernière plus moins tous seulement sauf peut doit deux trois quatre cinq six sept huit neuf dix "
    ),
    "Spanish": (
        "quién quiénes qué cuál cuáles cuándo dónde cómo cuánto cuánta cuántos cuántas nunca sin antes después primero primera "
        "permitido permitida prohibido prohibida legal ilegal obligatorio obligatoria opcional válido inválido vendedor comprador "
        "arrendador inquilino empleador empleado ventajas desventajas verdadero falso bueno malo "
        "segundo último última más menos todos solo excepto puede debe dos tres cuatro cinco seis siete ocho nueve diez"
    ),
}
_DECIDING = frozenset(" ".join(_DECIDING_OF.values()).casefold().split())
_DECIDING_STEMS = {
    language.casefold(): frozenset(stem(word, language.casefold()) for word in words.casefold().split())
    for language, words in _DECIDING_OF.items()
}
_NEGATING = ("un", "in", "im", "il", "ir", "non", "non-", "dis", "mis", "de", "anti", "anti-")
"""Beginnings that turn a word into its opposite in one of these languages: reversible, irreversible."""

_OPENINGS_OF = {
    "English": (
        "a an and are as at but by can could did do does explain for from give has have had how i if in is it list may me of on "
        "or please should show so tell that the their there these they this those to was we were will with would you "
    ),
    "German": (
        "der die das ein eine ist sind war waren hat haben im in am an auf bei bitte den dem gibt es nenne sag erkläre "
    ),
    "French": ("le la les un une des est sont était dans sur en du de y il elle quel donne explique "),
    "Spanish": ("el los las una es son fue era del al hay dime explica"),
}
_OPENINGS = frozenset(" ".join(_OPENINGS_OF.values()).casefold().split()) | _DECIDING
"""Words that begin a sentence, and so have a capital letter, without being a name."""


_TIME_WORDS_OF = {
    "English": (
        "today tonight yesterday tomorrow now nowadays current currently latest recent recently lately newest upcoming "
        "present presently ongoing still yet soon already ago today's yesterday's tomorrow's "
    ),
    "German": (
        "heute gestern morgen übermorgen vorgestern jetzt aktuell aktuelle aktuellen aktueller aktuelles derzeit zurzeit "
        "momentan gegenwärtig neueste neuesten neuester neuestes neulich kürzlich gerade inzwischen bald heutige heutigen "
    ),
    "French": (
        "aujourd'hui hier demain maintenant actuel actuelle actuels actuelles actuellement récent récente récents récentes "
        "récemment bientôt désormais "
    ),
    "Spanish": ("hoy ayer mañana ahora actual actuales actualmente reciente recientes recientemente todavía aún "),
    "Italian": ("oggi ieri domani adesso ora attuale attuali attualmente recente recenti recentemente ancora "),
    "Portuguese": ("hoje ontem amanhã agora atual atuais atualmente recentemente ainda "),
    "Dutch": ("vandaag gisteren nu huidig huidige momenteel onlangs nieuwste recente binnenkort "),
    "Russian": (
        "сегодня вчера завтра сейчас теперь текущий текущая текущее текущие недавно последний последняя последние "
        "последних нынешний нынешняя"
    ),
}
_TIME_WORDS = frozenset(" ".join(_TIME_WORDS_OF.values()).casefold().split())

_TIME_PHRASES = re.compile(
    r"""\b(
    # English
      (this|last|past|next|previous|coming|these|those)\ (\w+\ )?
        (second|minute|hour|day|night|morning|afternoon|evening|week|weekend|fortnight|month|quarter|season|semester|year
        |decade|century|monday|tuesday|wednesday|thursday|friday|saturday|sunday|january|february|march|april|may|june
        |july|august|september|october|november|december|spring|summer|autumn|fall|winter)s?
    | as\ of | so\ far | to\ date | up\ to\ date | right\ away | at\ the\ moment | how\ old | how\ long\ (has|have|until)
    | these\ days | time\ is\ it | date\ is\ it | day\ is\ it | most\ recent
    # German
    | (diese[mnrs]?|letzte[mnrs]?|vorige[mnrs]?|vergangene[mnrs]?|nächste[mnrs]?|kommende[mnrs]?)\ (\w+\ )?
        (stunden?|tage?s?|wochen?|wochenende|monate?s?|quartals?|jahre?s?|jahrzehnte?s?
        |montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag)
    | vor\ kurzem | im\ moment | wie\ alt | bis\ jetzt | seit\ wann | wie\ lange\ noch | wie\ spät
    # French
    | (cette|ce|ces)\ (semaine|mois|année|an|matin|soir|jour|jours|trimestre|weekend|week-end)
    | (semaine|mois|année|an|trimestre|jours?)\ (derni(er|ère)s?|prochaine?s?|passée?s?)
    | derni(er|ère)s?\ (semaines?|mois|années?|ans?|jours?) | en\ ce\ moment | quel\ âge | il\ y\ a | à\ ce\ jour
    # Spanish
    | est[aeo]s?\ (semana|mes|año|día|mañana|noche|trimestre)s? | (semana|mes|año|día)\ (pasad[oa]|próxim[oa]|que\ viene)
    | últim[oa]s?\ (\w+\ )?(semana|mes|año|día|hora)s? | próxim[oa]s?\ (semana|mes|año|día)s? | cuántos\ años\ tiene
    # Italian
    | quest[aoe']\ ?(settimana|mese|anno|mattina|sera|trimestre) | (scors[oa]|prossim[oa]|ultim[oaie])\ (settiman[ae]|mes[ei]|ann[oi])
    | (settimana|mese|anno)\ (scors[oa]|prossim[oa]) | quanti\ anni\ ha
    # Portuguese
    | (esta|este|nesta|neste)\ (semana|mês|ano|manhã|noite) | (semana|mês|ano)\ (passad[oa]|que\ vem) | próxim[oa]\ (semana|mês|ano)
    | últim[oa]s\ (\w+\ )?(semanas|meses|anos|dias) | quantos\ anos\ tem
    # Dutch
    | (deze|dit|vorige?|volgende?|afgelopen|komende?)\ (week|weekend|maand|jaar|kwartaal|uur|dag) | op\ dit\ moment | hoe\ oud
    # Russian
    | (на\ )?(этой|прошлой|следующей)\ неделе | в\ (этом|прошлом|следующем)\ (месяце|году) | сколько\ лет | до\ сих\ пор
    )\b""",
    re.VERBOSE,
)

_TIME_SIGNS = re.compile(
    "今天|今日|昨天|昨日|明天|明日|现在|現在|目前|当前|當前|最近|最新|刚刚|今年|去年|明年|来年|本周|上周|下周|今週|先週|来週|本月|上个月|下个月|今月|先月|来月|近日|几岁|何歳"
)
"""Chinese and Japanese have no spaces: these are found anywhere."""


def may_share_answer(one: str, other: str) -> bool:
    """Whether the answer to one question may serve the other, if their meaning is the same by their vectors."""
    return same_deciding_words(one, other) and not differ_in_one_word(one, other)


def same_deciding_words(one: str, other: str) -> bool:
    """Whether numbers, symbols, names, what is quoted, deciding words and words with an opposite among these, or with
    other accents, are the same in both, in the same order."""
    ones, others = _words(one), _words(other)
    deciding = {word for word, is_name in (*ones, *others) if is_name or _decides(word)}
    words = {word for word, _ in (*ones, *others)}
    deciding |= _with_opposite(words) | _with_other_accents(words)
    return [word for word, _ in ones if word in deciding] == [word for word, _ in others if word in deciding]


def differ_in_one_word(one: str, other: str) -> bool:
    """Whether each question has one word that the other lacks, and all others in common. Forms of a word are one word,
    and function words are none."""
    ones, others = _terms(one), _terms(other)
    return (ones - others).total() == (others - ones).total() == 1


def _terms(question: str) -> Counter[str]:
    words = sparse.words(question)
    languages = languages_of(words)
    return Counter(term for word in words for term in sparse.terms_told(word, languages))


def _with_opposite(words: set[str]) -> set[str]:
    """Words of these with their opposite among them, told by beginning or end."""
    pairs = [(word, negating + word) for word in words for negating in _NEGATING]
    pairs += [(word, f"{word.removesuffix('ful')}less") for word in words]
    pairs += [(word, word[:-2] + "ee") for word in words]  # lessor, lessee
    return {word for pair in pairs if words.issuperset(pair) for word in pair}


def _with_other_accents(words: set[str]) -> set[str]:
    """Words of these that differ from another of them in accents alone."""
    bare = {word: without_accents(word) for word in words}
    times = Counter(bare.values())
    return {word for word in words if times[bare[word]] > 1}


def _decides(word: str) -> bool:
    has_digit = any(map(str.isdigit, word))
    has_uncased = any(sign.isalpha() and sign.lower() == sign.upper() for sign in word)  # scripts without capitals
    return has_digit or has_uncased or bool(_SYMBOL.match(word)) or _is_listed(word) or word.endswith("n't")


def _is_listed(word: str) -> bool:
    """Whether a word or another form of it is in the lists: increases is, for increase."""
    return word in _DECIDING or any(stem(word, language) in stems for language, stems in _DECIDING_STEMS.items())


def _words(question: str) -> list[tuple[str, bool]]:
    """Each word in lower case, and whether it is a name: written with a capital letter, or quoted."""
    text = normalised("NFKC", question).replace("’", "'")
    quotes, end = _Quotes(text), None
    found = []
    for word in _WORD.finditer(text):
        begins = end is None or _SENTENCE_END.search(text, end, word.start()) is not None
        has_capital = any(sign.isupper() or sign.istitle() for sign in word.group())
        opens_sentence = begins and word.group().casefold() in _OPENINGS
        is_name = (has_capital and not opens_sentence) or quotes.reach(word.start())
        found.append((word.group().casefold().removesuffix("'s"), is_name))
        end = word.end()
    return found


class _Quotes:
    """The quoted stretches of a text, passed through once from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._spans: Iterator[tuple[int, int]] = (match.span() for match in _QUOTED.finditer(text))
        self._span = next(self._spans, None)

    def reach(self, at: int) -> bool:
        """Whether a place is quoted. Places come in ascending order."""
        while self._span is not None and self._span[1] <= at:
            self._span = next(self._spans, None)
        return self._span is not None and self._span[0] <= at


def is_time_bound(question: str) -> bool:
    """Whether the question names a moment that moves on, like today, or the latest of something."""
    text = " ".join(normalised("NFC", question).casefold().replace("’", "'").split())
    words = re.findall(r"\w+(?:'\w+)*", text)
    return (
        not _TIME_WORDS.isdisjoint(words)
        or _TIME_PHRASES.search(text) is not None
        or _TIME_SIGNS.search(text) is not None
    )
