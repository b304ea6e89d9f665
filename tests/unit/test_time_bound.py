"""Questions whose answer depends on the day."""

import pytest

from ragkv.service.answer_cache.guards import is_time_bound

BOUND = [
    "What is on the menu today?",
    "What’s today’s menu?",
    "Who is the current president?",
    "Which is the LATEST version?",
    "What changed this week?",
    "What did we decide last two weeks ago?",
    "Who won the last three seasons?",
    "Which talks are there next Monday?",
    "How old is Ada?",
    "How long has he been chairman?",
    "What is the price now?",
    "What was published recently?",
    "Was gibt es heute zu essen?",
    "Wer ist der aktuelle Präsident?",
    "Was geschah letzte Woche?",
    "Wie alt ist sie?",
    "Qu'est-ce qu'on mange aujourd'hui ?",
    "Qu’est-ce qu’on mange aujourd’hui ?",
    "Qui a gagné la semaine dernière ?",
    "¿Qué pasó ayer?",
    "¿Qué hay esta semana?",
    "Chi ha vinto questa settimana?",
    "Quem ganhou ontem?",
    "Wie is de huidige voorzitter?",
    "Кто сейчас президент?",
    "今天天气怎么样？",
    "最新のバージョンは？",
]
FREE = [
    "Who wrote the first program?",
    "When was Ada Lovelace born?",
    "What is the notice period for terminating the contract?",
    "Which year did the war end?",
    "How long is the bridge?",
    "Who knows the way to Daybrook?",
    "Wer schrieb das erste Programm?",
    "Qui a écrit le premier programme ?",
    "¿Quién escribió el primer programa?",
    "谁写了第一个程序？",
    "",
]


def test_a_question_that_names_a_moving_moment_is_bound_to_it(subtests: pytest.Subtests):
    for question in BOUND:
        with subtests.test(question):
            assert is_time_bound(question)


def test_any_other_question_is_not(subtests: pytest.Subtests):
    for question in FREE:
        with subtests.test(question):
            assert not is_time_bound(question)
