"""Questions whose answer depends on when they are asked: no earlier answer serves them.

Words of English, German, French, Spanish, Italian, Portuguese, Dutch, Russian, Chinese and Japanese. A question in
another language is not recognised. A word too many only costs a second answer; a word too few serves an old one.
"""

import re

from ragkv.normal_form import normalised

_WORDS_OF = {
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
_WORDS = frozenset(" ".join(_WORDS_OF.values()).casefold().split())

_PHRASES = re.compile(
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

_SIGNS = re.compile(
    "今天|今日|昨天|昨日|明天|明日|现在|現在|目前|当前|當前|最近|最新|刚刚|今年|去年|明年|来年|本周|上周|下周|今週|先週|来週|本月|上个月|下个月|今月|先月|来月|近日|几岁|何歳"
)
"""Chinese and Japanese have no spaces: these are found anywhere."""


def is_time_bound(question: str) -> bool:
    """Whether the question names a moment that moves on, like today, or the latest of something."""
    text = " ".join(normalised("NFC", question).casefold().replace("’", "'").split())
    words = re.findall(r"\w+(?:'\w+)*", text)
    return not _WORDS.isdisjoint(words) or _PHRASES.search(text) is not None or _SIGNS.search(text) is not None
