"""Citations, on passages from 2WikiMultihopQA (Apache-2.0) and HotpotQA (CC BY-SA 4.0)."""

import random
import time
from dataclasses import replace

import pytest

from ragkv.answer.cite import cite
from ragkv.answer.sentences import MAX_CHARACTERS, sentences, statements
from ragkv.chunk import Chunk, Passage
from tests.support.hash_seeds import results_by_seed

START = 1000  # the chunks below begin at this character of their documents

LOTHAIR = (
    "Lothair II",
    (
        "Lothair II (835 –) was the king of Lotharingia from 855 until his death. He was the second son of Emperor Lothair I "
        "and Ermengarde of Tours. He was married to Teutberga (died 875), daughter of Boso the Elder."
    ),
)
ERMENGARDE = (
    "Ermengarde of Tours",
    (
        "Ermengarde of Tours (d. 20 March 851) was the daughter of Hugh of Tours, a member of the Etichonen family. In "
        "October 821 in Thionville, she married the Carolingian Emperor Lothair I of the Franks (795–855)."
    ),
)
THEODRED = (
    "Theodred II (Bishop of Elmham)",
    (
        "Theodred II was a medieval Bishop of Elmham. The date of Theodred's consecration unknown, but the date of his death "
        "was sometime between 995 and 997."
    ),
)
BLOOD_STREET = (
    "Blood Street",
    (
        "Blood Street is a 1988 film co-directed by Leo Fong. It stars Fong in a reprised role as private detective Joe Wong "
        "who has been hired to find a woman's husband who has gone missing."
    ),
)
LEO_FONG = (
    "Leo Fong",
    (
        "Leo Fong (born November 23, 1928) is a Chinese American actor, martial artist, boxer, and former Methodist minister. "
        'His latest film role is in "Challenge of Five Gauntlets" which was released in 2018.'
    ),
)
SLING = (
    "Singapore Sling",
    (
        "The Singapore Sling is a gin-based cocktail from Singapore. This long drink was developed sometime before 1915 by "
        "Ngiam Tong Boon, a Hainanese bartender working at the Long Bar in Raffles Hotel, Singapore."
    ),
)
PUNCH = (
    "Fish House Punch",
    (
        "Fish House Punch is a strong, rum-based punch containing rum, cognac, and peach brandy. The drink is typically "
        "served over an ice block in a punch bowl and garnished with lemon slices."
    ),
)
PHOOLWARI = (
    "Phoolwari",
    "Phoolwari( The Bower) is a 1946 Indian Bollywood film. It was the third highest grossing Indian film of 1946.",
)
PANCHHI = (
    "Aas Ka Panchhi",
    "Aas Ka Panchhi is a 1961 Hindi movie produced by J. Om Prakash. It is written by Mohan Kumar and Rajinder Singh Bedi.",
)


def passages(*texts: tuple[str, str]) -> list[Passage]:
    return [
        Passage(Chunk(title, f"doc {title}", 0, title, text, START, START + len(text), 3, ()), 1 / (rank + 1), 1)
        for rank, (title, text) in enumerate(texts)
    ]


def cited(citations) -> list[str]:
    return [citation.title for citation in citations]


MOTHER = "When did Lothair II's mother die?"


def test_a_short_answer_is_cited_where_it_is_said():
    found = cite("20 March 851", MOTHER, passages(THEODRED, LOTHAIR, ERMENGARDE))
    assert found[0].title == "Ermengarde of Tours"
    assert "20 March 851" in found[0].quote


def test_the_passage_that_leads_to_the_answer_is_cited_too():
    """The question asks about Lothair; only his passage says that Ermengarde was his mother."""
    found = cite("20 March 851", MOTHER, passages(THEODRED, LOTHAIR, ERMENGARDE))
    assert cited(found) == ["Ermengarde of Tours", "Lothair II"]
    assert "Ermengarde of Tours" in found[1].quote


def test_a_single_word_answer_is_cited_with_its_bridge():
    found = cite("Chinese", "What nationality is the director of film Blood Street?", passages(BLOOD_STREET, LEO_FONG))
    assert cited(found) == ["Leo Fong", "Blood Street"]


def test_a_quote_is_the_documents_own_characters():
    given = passages(LOTHAIR, ERMENGARDE)
    for citation in cite("20 March 851", MOTHER, given):
        text = next(p.chunk.text for p in given if p.chunk.id == citation.chunk_id)
        assert citation.quote == text[citation.start - START : citation.end - START]
        assert (citation.document_id, citation.page) == (f"doc {citation.title}", 3)


def test_each_statement_has_citations_of_its_own():
    answer = "His mother was Ermengarde of Tours, who died on 20 March 851. Theodred II was a Bishop of Elmham."
    found = cite(answer, "Tell me about Lothair's mother and a bishop.", passages(THEODRED, LOTHAIR, ERMENGARDE))
    spans = {answer[c.answer_start : c.answer_end] for c in found}
    assert spans == {answer[: answer.index(" Theodred")], "Theodred II was a Bishop of Elmham."}
    by_span = [(c.title, c.answer_start > 0) for c in found]
    assert ("Ermengarde of Tours", False) in by_span
    assert ("Theodred II (Bishop of Elmham)", True) in by_span


def test_yes_and_no_are_cited_by_what_the_question_names():
    found = cite(
        "yes", "Do Singapore Sling and Fish House Punch both contain alcohol?", passages(SLING, THEODRED, PUNCH)
    )
    assert set(cited(found)) == {"Singapore Sling", "Fish House Punch"}


@pytest.mark.parametrize("answer", ["Yes, it is based on gin.", "No, it is based on gin."])
def test_a_reason_after_yes_or_no_is_cited(answer: str):
    found = cite(answer, "Is the Singapore Sling a soft drink?", passages(SLING, THEODRED))
    assert [c.quote for c in found] == ["The Singapore Sling is a gin-based cocktail from Singapore."]


def test_a_choice_between_two_is_cited_by_both():
    found = cite(
        "Phoolwari", "Which film was released first, Aas Ka Panchhi or Phoolwari?", passages(PANCHHI, PHOOLWARI)
    )
    assert set(cited(found)) == {"Phoolwari", "Aas Ka Panchhi"}


SUPPORT = ("Goals", "The median answer time of Support falls from 9 to 4 hours.")


def test_the_words_that_announce_an_answer_are_not_news():
    given = passages(ERMENGARDE, SUPPORT)
    assert cited(cite("The answer is: Ermengarde", "Who was she?", given)) == ["Ermengarde of Tours"]
    assert cite("The answer is:", "How many hours does Support take?", given) == ()


def test_a_number_that_is_cut_off_supports_nothing():
    given = passages(ERMENGARDE, SUPPORT)
    question = "In which years did it happen?"
    assert cited(cite("It happened in 795, 821 and 4", question, given)) == ["Ermengarde of Tours", "Goals"]
    assert cited(cite("It happened in 795, 821 and 4", question, given, is_cut=True)) == ["Ermengarde of Tours"]
    assert cite("1. 2. 3. 4", question, given, is_cut=True) == ()


@pytest.mark.parametrize(
    "answer", ["1952", "Napoleon Bonaparte", "The passages do not say.", "I don't know.", "", "..."]
)
def test_what_no_passage_supports_has_no_citation(answer):
    assert cite(answer, MOTHER, passages(THEODRED, LOTHAIR, ERMENGARDE)) == ()


def test_part_of_a_date_is_not_the_date():
    assert cite("20 May 1987", MOTHER, passages(ERMENGARDE)) == ()


@pytest.mark.parametrize(
    ("answer", "question", "says"),
    [
        ("yes", "Do Singapore Sling and Fish House Punch both contain alcohol?", "The House was sold."),
        ("blue", "Which colour has the car of Anna?", "The sky was blue."),
    ],
    ids=["one word of what is asked", "a common word beside nothing that is asked"],
)
def test_a_word_in_common_alone_supports_nothing(answer: str, question: str, says: str):
    assert cite(answer, question, passages(("Elsewhere", says))) == ()


def test_half_of_a_name_is_not_the_name():
    assert cite("Hugh Lincoln", MOTHER, passages(ERMENGARDE)) == ()


@pytest.mark.parametrize("scores", [(0.9, 0.1), (0.1, 0.9)])
def test_of_passages_that_say_the_same_the_one_that_retrieval_ranked_higher_is_cited(scores: tuple[float, float]):
    twins = [
        Passage(replace(passage.chunk, id=str(score)), score, 1)
        for score, passage in zip(scores, passages(ERMENGARDE, ERMENGARDE), strict=True)
    ]
    assert cite("20 March 851", MOTHER, twins)[0].chunk_id == "0.9"


def test_a_sentence_that_says_it_word_for_word_comes_before_one_with_more_of_the_question():
    question = "For which paper did Ada Smith write about the harbour?"
    loose = ("A", "Smith told The Times about the paper mills of New York.")
    verbatim = ("B", "She wrote for the New York Times.")

    assert cited(cite("New York Times", question, passages(loose, verbatim)))[0] == "B"


def test_a_passage_that_leads_to_the_answer_is_cited_only_if_it_adds_to_the_question():
    question = "When did Lothair II's mother die, and where in Lotharingia did the Emperor bury her?"
    aside = ("Hugh", "The mother of Ermengarde of Tours had come from Alsace.")
    citations = cite("20 March 851", question, passages(ERMENGARDE, LOTHAIR, aside))

    assert cited(citations) == ["Ermengarde of Tours", "Lothair II"]


def test_no_passages_no_citations():
    assert cite("Paris", "Where?", []) == ()


def test_numbers_match_with_and_without_separators():
    town = ("Springfield", "Springfield is a town. Its population was 12545 at the census.")
    assert cited(cite("12,545", "What is the population of Springfield?", passages(town))) == ["Springfield"]


@pytest.mark.parametrize("answer", ["229", "€229", "229.00", "229,0 EUR"])
def test_numbers_match_with_and_without_zeros_behind_the_point(answer: str):
    prices = ("Prices", "The chair is black. The chair costs 229.00 EUR.")
    citations = cite(answer, "How much is the chair?", passages(prices))
    assert [c.quote for c in citations] == ["The chair costs 229.00 EUR."]
    assert cite("10.0.0.229", "How much is the chair?", passages(prices)) == ()


def test_parts_of_a_number_are_not_the_number(subtests: pytest.Subtests):
    for answer, says in [
        ("2.50 AUD", "Station 50 recorded reading 5746 on day 2 with valve E84 open."),
        ("3,5 %", "Of 5 stations 3 were open."),
        ("14:30", "On day 14 there were 30 guests in the canteen."),
    ]:
        with subtests.test(answer=answer):
            log = ("Log", f"{says} Of that {answer} was said.")
            assert [c.quote for c in cite(answer, "What is it?", passages(log))] == [f"Of that {answer} was said."]
            assert cite(answer, "What is it?", passages(("Log", says))) == ()


def test_accents_and_case_do_not_matter():
    player = ("FC Barcelona", "The club signed Cesc Fàbregas in 2011.")
    assert cited(cite("cesc fabregas", "Whom did the club sign?", passages(player))) == ["FC Barcelona"]


def test_a_statement_has_at_most_three_citations():
    four = [("1", "Ada worked on engines."), ("2", "Grace taught."), ("3", "Hedy sang."), ("4", "Mary painted.")]
    assert cited(cite("yes", "Did Ada, Grace, Hedy and Mary work?", passages(*four))) == ["1", "2", "3"]


def test_a_long_answer_over_many_sentences_takes_bounded_time():
    """Statements of one word, each as likely as every other: without a bound it is eleven seconds."""
    titled = [(f"Volume {i}", "\n\n".join(f"Abe {i + j} picked it" for j in range(10))) for i in range(200)]
    answer, given, began = "\n\n".join(f"Abe {i}" for i in range(2000)), passages(*titled), time.process_time()

    found = cite(answer, "Who picked it, and when?", given)

    assert time.process_time() - began < 5
    assert found[0].quote == "Abe 0 picked it"
    assert max(citation.answer_end for citation in found) < len(answer) / 10


def test_an_answer_of_a_page_over_the_most_passages_is_cited_to_its_end():
    titled = [
        (f"Volume {i}", " ".join(f"In {1000 + i} the Author{j} of volume {i} wrote line {j} of it." for j in range(10)))
        for i in range(200)
    ]
    answer = " ".join(f"In {1000 + i} the Author{i % 10} wrote it." for i in range(0, 200, 5))

    found = cite(answer, "Who wrote which line?", passages(*titled))

    assert {citation.title for citation in found} >= {f"Volume {i}" for i in range(0, 200, 5)}


def citations_of_equals() -> list[tuple[str, str]]:
    """Citations of statements that several sentences support with the same words, of many weights, in other orders."""
    draw = random.Random(1)
    words = [f"{letter}{letter}{end}" for letter in "bcdfghjklmnp" for end in ("ova", "UPA", "7")]
    citations = []
    for _ in range(8):
        said = draw.sample(words, 12)
        parts = [(f"part {i}", f"{' '.join(draw.sample(said, 4))}.") for i in range(12)]
        equals = [(str(i), f"{' '.join(draw.sample(said, 12))} and{i}.") for i in range(6)]
        citations += cite(f"so {' '.join(said)}.", "Which of them?", passages(*parts, *equals))
    return [(citation.title, citation.quote) for citation in citations]


def test_the_same_arguments_give_the_same_citations_in_every_process():
    assert len(results_by_seed("tests.unit.test_cite", "citations_of_equals()")) == 1


def texts(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


def test_abbreviations_and_initials_end_no_sentence():
    assert texts("Dr. J. Om Prakash (b. 1926) lived in St. Louis. He wrote.") == [
        "Dr. J. Om Prakash (b. 1926) lived in St. Louis.",
        "He wrote.",
    ]


def test_a_wrapped_line_ends_no_sentence_but_a_blank_one_does():
    assert texts("A title\n\nThe first\nsentence. The second.") == ["A title", "The first\nsentence.", "The second."]


def test_closing_quotes_belong_to_their_sentence():
    assert texts('He said "yes." Then he left.') == ['He said "yes."', "Then he left."]


def test_a_long_list_is_cut_at_its_lines():
    lines = [f"item {i} " + "x" * 80 for i in range(10)]
    assert texts("\n".join(lines)) == lines
    assert len("\n".join(lines)) > MAX_CHARACTERS


def test_abbreviations_before_numbers_end_no_sentence():
    assert texts("Chanel No. 5 is in Fig. 3 of Vol. 12. Is it? No. 7 are.") == [
        "Chanel No. 5 is in Fig. 3 of Vol. 12.", "Is it?", "No. 7 are.",
    ]  # fmt: skip
    assert texts("Is it? No. It is not.") == ["Is it?", "No.", "It is not."]


def test_marks_of_references_are_no_words_of_a_statement():
    given = passages(LEO_FONG, BLOOD_STREET)
    asked = "Who co-directed Blood Street?"

    assert cited(cite("Leo Fong [1]", asked, given)) == cited(cite("Leo Fong", asked, given)) != []


def test_words_on_both_sides_of_a_mark_of_a_reference_are_two():
    given = passages(("Engine", "The first program was written by Ada Lovelace[1]who had seen the engine."))
    assert cited(cite("Ada Lovelace", "Who wrote the first program?", given)) == ["Engine"]


@pytest.mark.parametrize(
    ("question", "answer", "says", "quote"),
    [
        (
            "When did the ship reach the harbour?",
            "87",
            "The ship reached the harbour in the year\n87. Its captain had died at sea.",
            "The ship reached the harbour in the year\n87.",
        ),
        (
            "How large was the crew?",
            "12",
            "The ship had sailed with a crew of\n12. Most came home.",
            "The ship had sailed with a crew of\n12.",
        ),
    ],
)
def test_a_number_at_the_start_of_a_wrapped_line_of_a_passage_is_cited(
    question: str, answer: str, says: str, quote: str
):
    assert [citation.quote for citation in cite(answer, question, passages(("Ship", says)))] == [quote]


def test_numbers_of_a_list_are_in_no_statement():
    answer = "These are:\n1. The Louvre.\n 2. Paris\n\n10) He left in\n12. march."
    assert [answer[start:end] for start, end in statements(answer)] == [
        "These are:", "The Louvre.", "Paris", "He left in\n12. march.",
    ]  # fmt: skip


def test_numbers_of_a_list_in_one_line_are_no_statements():
    answer = "1. He left in 1841. 2. She stayed. 3. They met (see No. 4).\n5.\nThat is all."
    assert [answer[start:end] for start, end in statements(answer)] == [
        "He left in 1841.", "She stayed.", "They met (see No. 4).", "5.", "That is all.",
    ]  # fmt: skip
    assert statements("5.") == [(0, 2)]
    for answer in ("1. He left. 2. She stayed. 3.", "He left.\n2) She stayed.\n3)\n"):
        assert answer[slice(*statements(answer)[-1])] == "She stayed."
    assert statements("They had 2 sons. In all there were\n3.")[-1][1] == 37


def test_the_number_of_an_item_is_no_statement():
    given = passages(("Louvre", "It has 1 pyramid and 2 wings. The Louvre was opened in 1793."))
    answer = "1. The Louvre opened in 1793.\n2. It has 2 wings."
    quotes = [(answer[c.answer_start : c.answer_end], c.quote) for c in cite(answer, "What is known?", given)]

    assert quotes == [
        ("The Louvre opened in 1793.", "The Louvre was opened in 1793."),
        ("It has 2 wings.", "It has 1 pyramid and 2 wings."),
    ]


def test_empty_text_has_no_sentences():
    assert texts(" \n\n ") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("من كتبه؟ كتبته آدا.", ["من كتبه؟", "كتبته آدا."]),
        ("یہ ایک ہے۔ یہ دو ہے۔", ["یہ ایک ہے۔", "یہ دو ہے۔"]),
        ("यह एक है। यह दो है।", ["यह एक है।", "यह दो है।"]),
        ("彼は「はい。」と言った。次。", ["彼は「はい。」", "と言った。", "次。"]),
        ("ខ្ញុំទៅ។ គាត់មក។", ["ខ្ញុំទៅ។", "គាត់មក។"]),
        ("Siehe z. B. Nr. 5 bzw. Abs. 2. Ende.", ["Siehe z. B. Nr. 5 bzw. Abs. 2.", "Ende."]),
        ("M. Hugo et Mme. Drouet virent Paris. Elle rit.", ["M. Hugo et Mme. Drouet virent Paris.", "Elle rit."]),
    ],
)
def test_sentences_end_as_their_script_and_language_have_it(text: str, found: list[str]):
    assert [text[start:end] for start, end in sentences(text)] == found


IN_LANGUAGES = {
    "german": (
        "Wer hat die Brücke gebaut?",
        "Die Brücken wurden von dem Ingenieur Karl Weber entworfen.",
        "Der Ingenieur Karl Weber hat die Brücke entworfen, und sie war die erste aus Stahl.",
        "Die Häuser der Stadt sind alt. Sie wurden nicht von den Bürgern verkauft.",
    ),
    "french": (
        "Qui a écrit le roman ?",
        "Les romans sont écrits par une institutrice normande.",
        "Le roman est écrit par une institutrice de la région normande.",
        "Les maisons du village sont vieilles. Elles ne sont pas vendues.",
    ),
    "arabic": (
        "متى افتتحت المكتبة؟",
        "افتتحت المكتبة الكبيرة في شهر مارس.",
        "هذه هي المكتبات الكبيرة التي افتتحت في مارس.",
        "كان السوق في المدينة القديمة. بيعت البيوت على الشاطئ.",
    ),
    "korean": (
        "누가 다리를 설계했습니까?",
        "다리는 기술자 김민수가 설계했습니다.",
        "기술자 김민수는 한강의 다리를 설계하였다.",
        "도서관은 봄에 문을 열었다. 책은 무료로 빌릴 수 있다.",
    ),
    "japanese": (
        "橋を設計したのは誰ですか。",
        "橋は技師の田中一郎が設計しました。",
        "技師の田中一郎は東京の橋を設計した。",
        "図書館は春に開館した。本は無料で借りられる。",
    ),
    "thai": (
        "ใครออกแบบสะพาน",
        "สะพานออกแบบโดยวิศวกรสมชาย ใจดี",
        "วิศวกรสมชาย ใจดี เป็นผู้ออกแบบสะพานข้ามแม่น้ำเจ้าพระยาในกรุงเทพ",
        "ห้องสมุดเปิดในฤดูใบไม้ผลิ ผู้อ่านยืมหนังสือได้โดยไม่เสียค่าใช้จ่าย",
    ),
}


@pytest.mark.parametrize(("question", "answer", "says", "beside"), IN_LANGUAGES.values(), ids=IN_LANGUAGES)
def test_an_answer_is_cited_where_its_language_says_it_in_other_forms(
    question: str, answer: str, says: str, beside: str
):
    one = passages(("1", beside), ("2", f"{beside}\n\n{says}"))
    citations = cite(answer, question, one)
    assert citations and {citation.quote for citation in citations} == {says}


@pytest.mark.parametrize(("question", "answer", "says", "beside"), IN_LANGUAGES.values(), ids=IN_LANGUAGES)
def test_what_no_passage_says_has_no_citation_in_any_language(question: str, answer: str, says: str, beside: str):
    assert not cite(answer, question, passages(("1", beside)))


def test_a_name_without_spaces_is_found_within_a_sentence():
    says = "日本の首都は東京である。"
    assert [citation.quote for citation in cite("東京", "日本の首都はどこですか。", passages(("日本", says)))] == [says]


THAI = "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ"
"""The Universal Declaration of Human Rights, article 1."""


def test_thai_is_cut_at_spaces_into_parts_of_a_sentences_length():
    assert texts(THAI) == [THAI[: THAI.index(" ")], THAI[THAI.index(" ") + 1 :]]
    assert texts("สิ่งต่าง ๆ " * 3 + "ดี") == ["สิ่งต่าง ๆ " * 3 + "ดี"]
