"""BM25 term vectors."""

import numpy as np
import pytest

from ragkv.retrieve import sparse


def terms_of(vector: sparse.SparseVector) -> set[int]:
    return set(vector[0].tolist())


def document_vector(text: str) -> sparse.SparseVector:
    """The vector of a document's only chunk."""
    return sparse.document_vectors([text])[0]


def english_terms(text: str) -> list[str]:
    return [term for word in sparse.words(text) for term in sparse.terms_told(word, {})]


def shared(question: str, chunk: str) -> int:
    """Terms of a question that a chunk has."""
    return len(terms_of(sparse.query_vector(question)) & terms_of(document_vector(chunk)))


def test_words_are_folded():
    assert sparse.words("Cesc FÀBREGAS joined, in ２００３!") == ["cesc", "fàbregas", "joined", "in", "2003"]


def test_terms_are_without_accents():
    assert english_terms("Fàbregas") == english_terms("FABREGAS") == ["fabrega"]


@pytest.mark.parametrize(
    ("question", "chunk"),
    [
        ("istanbul", "İSTANBUL"),
        ("İstanbul", "istanbul"),
        ("ısparta", "ISPARTA"),
        ("ışık", "IŞIK"),
        ("IŞIK", "ışık"),
        ("KIZ KULESİ", "kız"),
    ],
)
def test_capitals_of_turkish_meet_their_small_letters(question: str, chunk: str):
    """The capital I is that of a letter without a dot there."""
    assert shared(question, chunk) >= 1


def test_capitals_of_other_languages_have_no_turkish_forms():
    assert terms_of(sparse.query_vector("IBM INDIA")) == terms_of(sparse.query_vector("ibm india"))


@pytest.mark.parametrize(
    ("written", "typed"),
    [
        ("Łódź", "Lodz"), ("Wrocław", "wroclaw"), ("Søren Ødegård", "SOREN ODEGARD"), ("København", "Koebenhavn"),
        ("Đồng", "Dong"), ("Æsir", "Aesir"), ("Þingvellir", "Thingvellir"), ("Jürgen Müller", "Juergen Mueller"),
        ("Århus", "aarhus"), ("Wärmerückgewinnung", "Waermerueckgewinnung"), ("Größe", "GROESSE"),
    ],
)  # fmt: skip
def test_names_are_found_without_their_letters(written: str, typed: str):
    words = len(written.split())
    assert shared(typed, written) >= words
    assert shared(written, typed) >= words


def test_stop_words_and_short_words_have_no_other_spellings():
    assert shared("for old", "før øld") == 0
    assert shared("neue Quelle", "neu qulle") == 0


def test_a_spelling_that_may_be_another_word_weighs_less():
    def weight(question: str, term: str) -> float:
        return dict(zip(*map(list, sparse.query_vector(question)), strict=True)).get(sparse.term_id(term), 0.0)

    assert (weight("guest", "guest"), weight("guest", "gust")) == (1.0, sparse.GUESS_WEIGHT)
    assert (weight("Müller", "muller"), weight("Müller", "mueller")) == (1.0, 1.0)


def test_marks_of_indic_scripts_belong_to_their_words():
    assert sparse.words("हिन्दी में लिखा") == ["हिन्दी", "में", "लिखा"]


def test_terms_are_stems_without_stop_words():
    assert english_terms("The directors of the films were directing") == ["director", "film", "direct"]


def test_scripts_without_spaces_and_korean_give_characters_and_pairs():
    """A voiced kana is not the unvoiced one, and half-width kana are the same as others."""
    for text, grams in (("東京都", ("東", "京", "都", "東京", "京都")), ("학교에", ("학", "교", "에", "학교", "교에"))):
        assert terms_of(document_vector(text)) == {sparse.term_id(gram) for gram in grams}
    assert shared("か", "が") == 0 and shared("ｶﾞｽ", "ガス") == 3


def test_a_pair_of_characters_weighs_half_a_word():
    weights = dict(zip(*map(list, sparse.query_vector("Tokyo 東京")), strict=True))
    assert (weights[sparse.term_id("tokyo")], weights[sparse.term_id("東京")]) == (1.0, sparse.GRAM_WEIGHT)


INFLECTED = {
    "german": ("Wo werden die Häuser verkauft?", "Das Haus ist zum Verkauf und der Garten nicht dabei.", "haus"),
    "french": ("Où sont les élections nationales ?", "Une élection nationale est prévue dans la région.", "nationale"),
    "spanish": ("¿Dónde están las ciudades que crecen?", "La ciudad crece y es una de las más grandes.", "crece"),
    "russian": ("Где находятся книги?", "Эта книга была на столе, и он не читал её.", "книга"),
    "arabic": ("أين المكتبات", "هذه هي المكتبة التي كان في المدينة", "المكتبة"),
    "hindi": ("किताबें कहाँ हैं", "यह किताब मेज पर है और उस में चित्र हैं", "किताब"),
    "finnish": ("Missä talot ovat?", "Tämä talo on vanha ja se ei ole suuri.", "talo"),
}


@pytest.mark.parametrize(("language", "case"), INFLECTED.items(), ids=INFLECTED)
def test_a_question_finds_another_form_of_a_word_in_the_language_of_the_chunk(
    language: str, case: tuple[str, str, str]
):
    question, chunk, word = case
    own = sparse.term_id(f"{language} {sparse.stem(word, language)}")
    assert own in terms_of(sparse.query_vector(question)) & terms_of(document_vector(chunk))


def test_the_terms_of_a_chunk_in_english_are_english_whatever_its_names():
    chunk = "The director of La vie en rose was born in Paris and is of the same age as he was then."
    assert terms_of(document_vector(chunk)) == {sparse.term_id(term) for term in english_terms(chunk)}


def test_a_chunk_of_any_language_has_its_english_terms_too():
    """A wrong guess takes nothing away."""
    chunk = "Die Wohnung ist nicht mit dem Garten und der Garage zu haben."
    assert terms_of(document_vector(chunk)) > {sparse.term_id(term) for term in english_terms(chunk)}


def test_a_chunk_that_does_not_tell_its_language_is_in_that_of_its_document():
    text, table = "Die Häuser sind nicht mit dem Garten zu haben.", "Haus | Preis"
    _, beside = sparse.document_vectors([text, table])
    assert sparse.term_id("german haus") in terms_of(beside)
    assert sparse.term_id("german haus") not in terms_of(document_vector(table))


def test_a_question_in_a_known_language_has_no_terms_of_others():
    known, unknown = sparse.query_vector("Wo ist die Bank und was ist das?"), sparse.query_vector("Bank Stadtpark")
    french = {sparse.term_id(f"french {sparse.stem(word, 'french')}") for word in ("bank", "stadtpark")}
    assert not terms_of(known) & french and french <= terms_of(unknown)


@pytest.mark.parametrize(
    "code", ["3.14", "2024-05-17", "AB-1234/C", "v2.10.3", "ada@example.org", "https://example.org/a?b=1", "max_tokens"]
)
def test_a_code_is_a_term_and_so_are_its_parts(code: str):
    text = f"It was {code}, then."
    assert sparse.term_id(code.lower()) in terms_of(document_vector(text)) & terms_of(sparse.query_vector(text))
    assert shared(sparse.words(code)[0], text) == 1


@pytest.mark.parametrize(
    ("asked", "written"), [("E17", "E-17"), ("e-17", "E17"), ("SK20931C", "SK-20931-C"), ("covid19", "COVID-19")]
)
def test_a_code_is_found_however_its_hyphens_are_written(asked: str, written: str):
    terms = terms_of(document_vector(f"It was {written}."))
    assert terms & terms_of(sparse.query_vector(asked))
    assert terms & set(sparse.identifiers(asked))


@pytest.mark.parametrize("asked", ["1234567", "1,234,567", "1.234.567", "1 234 567", "1'234'567", "$1,234,567.00"])
@pytest.mark.parametrize("written", ["1234567", "1234567.00", "1,234,567", "1,234,567.00", "1.234.567", "1.234.567,00"])
def test_a_number_is_found_however_its_thousands_are_written(asked: str, written: str):
    term = sparse.term_id(written)
    assert term in terms_of(document_vector(f"It was {written}."))
    assert term in terms_of(sparse.query_vector(f"Was it {asked}?"))
    assert term in sparse.identifiers(asked)


@pytest.mark.parametrize("text", ["100", "0012345", "1,2345", "12,34", "9" * 5_000])
def test_other_numbers_have_no_thousands(text: str):
    codes_and_words = {*sparse.codes(text), *map(sparse.stem, sparse.words(text))}
    assert set(sparse.identifiers(text)) <= set(map(sparse.term_id, codes_and_words))


@pytest.mark.parametrize("text", ["10km", "2nd", "well-known", "3.14"])
def test_amounts_and_words_have_no_other_hyphens(text: str):
    codes_and_words = {*sparse.codes(text), *map(sparse.stem, sparse.words(text))}
    assert set(sparse.identifiers(text)) <= set(map(sparse.term_id, codes_and_words))


def test_plain_compounds_and_ends_of_sentences_are_no_codes():
    assert sparse.codes("A well-known end.Next one, e.g. this and/or that.") == []


@pytest.mark.parametrize(
    "asked", ["2026-03-05", "5 March 2026", "March 5th, 2026", "05.03.2026", "5. März 2026", "5 de marzo de 2026"]
)
@pytest.mark.parametrize("written", ["2026-03-05", "05.03.2026", "5.3.2026", "05/03/2026", "2026/03/05"])
def test_a_date_finds_its_other_forms(asked: str, written: str):
    own = sparse.term_id(written)
    assert own in terms_of(document_vector(f"The fee of {written} is due."))
    assert own in terms_of(sparse.query_vector(f"Which fee is of {asked}?"))
    assert own in sparse.identifiers(f"Which fee is of {asked}?")


@pytest.mark.parametrize("asked", ["2026-03-05", "05.03.2026"])
@pytest.mark.parametrize(
    "written", ["5 March 2026", "March 5, 2026", "5. März 2026", "5 mars 2026", "5 de marzo de 2026"]
)
def test_a_date_in_numbers_has_the_words_of_one_in_words(asked: str, written: str):
    assert len(terms_of(sparse.query_vector(f"on {asked}")) & terms_of(document_vector(written))) >= 3


@pytest.mark.parametrize(
    "asked", ["12026-03-05", "2026-13-05", "2026-03-052", "version 26.3.5", "5/3/2026", "may 2026"]
)
def test_other_numbers_are_no_dates(asked: str):
    assert sparse.term_id("05.03.2026") not in terms_of(sparse.query_vector(asked))


def test_an_id_is_the_same_in_every_process():
    """A stored vector must be found after a restart: no use of Python's randomised hash."""
    assert sparse.term_id("london") == 0x777CE615


def test_a_second_mention_weighs_less_than_the_first():
    once, twice = (dict(zip(*document_vector(t), strict=True)) for t in ("river bank water", "river river water"))
    river = sparse.term_id("river")
    assert once[river] < twice[river] < 2 * once[river]


@pytest.mark.parametrize("others", ["water stone ", "水石山木", "물돌산목 ", "แม่น้ำ", "かわいし"])
def test_the_same_mention_weighs_less_in_a_longer_text(others: str):
    """In every script: pairs of characters count in a chunk's length as words do."""
    short = dict(zip(*document_vector("river"), strict=True))
    long = dict(zip(*document_vector("river " + others * 50), strict=True))
    assert long[sparse.term_id("river")] < short[sparse.term_id("river")]


def test_a_character_or_a_pair_counts_a_quarter_of_a_word_in_a_chunks_length():
    words = [f"w{i}" for i in range(48)]
    mixed = dict(zip(*document_vector(" ".join(words) + " " + "水石" * 32 + "水"), strict=True))
    length = 48 + sparse.GRAM_LENGTH * (65 + 64)
    expected = (sparse.K1 + 1) / (1 + sparse.K1 * (1 - sparse.B + sparse.B * length / sparse.AVERAGE_TERMS))
    assert mixed[sparse.term_id("w0")] == pytest.approx(expected)


def test_a_text_of_average_length_weighs_a_single_mention_1():
    """With tf = 1 and length = average the formula is (k1 + 1) / (1 + k1)."""
    text = " ".join(f"w{i}" for i in range(int(sparse.AVERAGE_TERMS)))
    assert document_vector(text)[1] == pytest.approx(1.0)


def test_ids_ascend_and_are_distinct():
    indices, values = document_vector("one river and another river met two more rivers")
    assert np.all(np.diff(indices.astype(np.int64)) > 0)
    assert indices.dtype == np.uint32
    assert values.dtype == np.float32


def test_a_question_weighs_each_distinct_term_1():
    indices, values = sparse.query_vector("Which of these is a river, river or stream?")
    assert len(indices) == 2
    assert values.tolist() == [1.0, 1.0]


def test_a_text_without_terms_has_an_empty_vector():
    assert document_vector("of the and")[0].size == 0
    assert sparse.query_vector("")[0].size == 0
