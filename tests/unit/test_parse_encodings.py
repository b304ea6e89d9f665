"""Text that is neither UTF-8 nor marked: which encodings are recognised, and what is refused rather than guessed."""

import random
import tempfile
import time
import zlib
from collections.abc import Iterator

import pytest

from ingest.parse import parse
from ingest.parse.guess import guess_encoding, has_wide_words
from ingest.sandbox.messages import Limits
from ingest.sandbox.parser import Parser
from ragkv.errors import Rejected
from ragkv.settings import Settings
from tests.support.made_files import epub

RUSSIAN = """Волга берёт начало на Валдайской возвышенности и впадает в Каспийское море. Весной река разливается, и \
луга по её берегам на несколько недель уходят под воду. В середине прошлого века на ней построили водохранилища."""
UKRAINIAN = """Карпати лежать на заході країни, і найвища їхня вершина зветься Говерла. Узимку в горах багато снігу, \
а влітку пастухи виганяють отари на полонини. Дерев'яні церкви цього краю занесено до списку світової спадщини."""
BULGARIAN = """Град Пловдив е разположен по двата бряга на река Марица и е населен от древни времена без прекъсване. \
В стария град са запазени римски театър и много къщи от времето на Възраждането, които всяка година привличат гости."""
GREEK = """Άνθρωποι κατοικούσαν στο νησί ήδη πριν από χιλιάδες χρόνια. Το λιμάνι βρίσκεται στη νότια πλευρά, όπου η θάλασσα \
είναι ήρεμη, και τα παλιά σπίτια ανεβαίνουν την πλαγιά μέχρι το κάστρο. Το καλοκαίρι φτάνουν πολλά πλοία κάθε μέρα."""
HEBREW = """העיר חיפה שוכנת על הר הכרמל ולחוף הים התיכון, ובה הנמל הגדול ביותר בצפון הארץ. הגנים התלויים יורדים \
במדרון בתשע עשרה מדרגות, ומהם רואים את המפרץ כולו. בחורף יורדים כאן גשמים רבים, ובקיץ האוויר חם ולח מאוד."""
ARABIC = """تقع مدينة الإسكندرية على ساحل البحر المتوسط، وكانت في العصور القديمة مركزا للعلم والتجارة. وفيها بنيت \
المنارة التي عدت من عجائب الدنيا، والمكتبة التي جمعت كتب العالم القديم. ويزورها اليوم كثير من الناس في فصل الصيف."""
THAI = """แม่น้ำเจ้าพระยาไหลผ่านกลางกรุงเทพมหานครแล้วลงสู่อ่าวไทย ในอดีตผู้คนเดินทางและค้าขายกันทางเรือเป็นหลัก \
ปัจจุบันยังมีเรือโดยสารแล่นตลอดวัน และสองฝั่งแม่น้ำมีวัดเก่าแก่กับตลาดที่นักท่องเที่ยวนิยมไปเยี่ยมชม"""
JAPANESE = """富士山は日本でいちばん高い山で、標高は三千七百七十六メートルである。山頂には大きな火口があり、冬には雪におおわれる。\
夏になると多くの人が登山に訪れ、山小屋に泊まって朝日を待つ。ふもとには五つの湖があり、水面に山の姿が映る。"""
SIMPLIFIED = """长江是亚洲最长的河流，发源于青藏高原，向东流经十一个省市，最后在上海注入东海。沿江的城市自古以来就是商业中心，\
船只把粮食、茶叶和丝绸运往各地。上世纪末，人们在三峡修建了世界上最大的水电站，许多村庄因此搬迁到了别处。"""
TRADITIONAL = """臺灣位於亞洲東部，四面環海，中央山脈由北向南貫穿全島。西部是平原，大部分的人口和城市都在這裡；東部的海岸則十分陡峭。\
每年夏天有幾個颱風經過，帶來大量的雨水。山區種植的茶葉和平原出產的水果都很有名，夜市裡的小吃更受遊客歡迎。"""
KOREAN = """한강은 태백산맥에서 시작하여 서울을 가로질러 서해로 흘러간다. 강을 따라 공원과 자전거 길이 이어져 있어 주말마다 많은 \
사람들이 찾아온다. 옛날에는 나루터에서 배를 타고 강을 건넜지만 지금은 서른 개가 넘는 다리가 양쪽을 잇고 있다."""

READABLE = [
    (RUSSIAN, ("cp1251", "koi8-r", "cp866", "iso8859-5")),
    (UKRAINIAN, ("cp1251", "koi8-u")),
    (BULGARIAN, ("cp1251", "cp866")),
    (GREEK, ("cp1253", "iso8859-7")),
    (HEBREW, ("cp1255", "iso8859-8")),
    (ARABIC, ("cp1256", "iso8859-6")),
    (THAI, ("cp874",)),
    (JAPANESE, ("shift-jis", "cp932", "euc-jp")),
    (SIMPLIFIED, ("gb2312", "gbk", "gb18030")),
    (TRADITIONAL, ("big5", "cp950", "gbk")),
    (KOREAN, ("euc-kr", "cp949")),
]
CASES = [(text, encoding) for text, encodings in READABLE for encoding in encodings]
WESTERN = {
    "French": "L'été, les élèves quittent déjà l'école à midi, où la fête « Noël en août » réjouit garçons et maîtres.",
    "German": "Für größere Gäste gibt es schöne Stühle; über die Straße führt eine Brücke, natürlich mit Geländer.",
    "Spanish": "¿Cuándo volverá el niño? Mañana, según dijo la señora, y su tío también vendrá después del café.",
    "Portuguese": "A informação não está disponível: são três as opções, e a decisão é de vocês até amanhã à noite.",
    "Icelandic": "Það er kalt á Íslandi á veturna, en sólin skín þó öðru hverju og fjöllin eru hvít og ægifögur.",
    "Finnish": "Äiti lähti töihin jo ennen kuin yö päättyi, eikä isäkään jäänyt enää pitkäksi aikaa kotiin.",
    "Danish": "Børnene på øen går i skole ved åen, og når året er gået, får de æbler og et kæmpestort bæger øl.",
}


def test_a_text_in_another_script_is_read(subtests: pytest.Subtests):
    for text, encoding in CASES:
        with subtests.test(encoding=encoding, text=text[:20]):
            assert parse("a.txt", text.encode(encoding)).text == text


def test_its_script_is_told_among_english_markup_and_code(subtests: pytest.Subtests):
    for text, encoding in CASES:
        with subtests.test(encoding=encoding, text=text[:20]):
            page = f"# Notes\n\n{text}\n\n```\n" + "for item in things: print(item)\n" * 100 + "```\n"
            assert text in parse("a.md", page.encode(encoding)).text


@pytest.mark.parametrize("encoding", ["shift-jis", "koi8-r"])
def test_it_is_read_in_the_confined_process(parser: Parser, encoding: str):
    text = JAPANESE if encoding == "shift-jis" else RUSSIAN
    assert read(parser, text.encode(encoding)) == text


def test_a_long_text_without_a_space_is_read():
    """The sample that is measured ends in the middle of a character."""
    text = SIMPLIFIED.replace("\n", "") * 400
    assert parse("a.txt", b"a" + text.encode("gbk")).text == "a" + text


PRICES = "Cena wynosi 300 złotych za kilogram mąki. Płatność z góry, wysyłka w ciągu tygodnia."


def test_a_few_words_are_too_few():
    for text, encoding in CASES:
        with pytest.raises(Rejected, match="save it as UTF-8"):
            parse("a.txt", text[:30].encode(encoding))


def test_western_text_is_never_taken_for_another_script(subtests: pytest.Subtests):
    for language, sentence in WESTERN.items():
        for times in [1, 3, 30, 1_000]:
            with subtests.test(language=language, times=times):
                text = "\n".join([sentence] * times)
                assert parse("a.txt", text.encode("cp1252")).text == text


def test_turkish_is_told_from_icelandic():
    turkish = "Hızlı tilki tembel köpeğin üzerinden atlar. Şehirde çok insan yaşıyor, İzmir'de de öyle."
    assert parse("a.txt", turkish.encode("cp1254")).text == turkish

    icelandic = "Það er nýtt hús við ána. Þau búa þar með börnum sínum, ýmist á sumrin eða um jól."
    assert parse("a.txt", icelandic.encode("cp1252")).text == icelandic


def test_signs_in_a_row_do_not_make_another_script():
    """The few places where western texts have bytes beyond ASCII side by side."""
    text = (
        "—" * 70
        + "\nA plain line of English." * 60
        + "\nÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿ\n"
        + "…" * 30
    )
    assert parse("a.txt", text.encode("cp1252")).text == text


def test_other_encodings_are_refused_not_read_as_something_else(subtests: pytest.Subtests):
    for text, encoding in [
        ("Барлық адамдар тумысынан азат және қадір-қасиеті мен құқықтары тең болып дүниеге келеді. " * 3, "kz1048"),
        ("Барлық адамдар тумысынан азат және қадір-қасиеті мен құқықтары тең болып дүниеге келеді. " * 3, "ptcp154"),
        (RUSSIAN, "mac-cyrillic"),
        (HEBREW, "cp862"),
        (GREEK, "cp737"),
        (KOREAN, "johab"),
        ("The quick brown fox jumps over the lazy dog, and nothing else happens. " * 5, "cp037"),
        (SIMPLIFIED, "utf-16-le"),
        (SIMPLIFIED, "utf-16-be"),
        (JAPANESE, "utf-16-le"),
        (PRICES, "cp1250"),
        (PRICES, "iso8859-2"),
        ("Preţul este 300 de lei, iar maşina costă puţin şi aşteaptă în faţa şcolii.", "cp1250"),
        ("La société a été créée à Genève, les élèves étaient présents.", "mac-roman"),
        ("Die Größe fährt während der Woche. Ein Mädchen hört schöne Töne.", "cp850"),
    ]:
        refusal = pytest.raises(Rejected, match=r"save it as UTF-8|upload PDF")
        with subtests.test(encoding=encoding, text=text[:20]), refusal:
            parse("a.txt", text.encode(encoding))


def test_seven_bits_with_escape_sequences_are_read(subtests: pytest.Subtests):
    for text, encoding in [
        (JAPANESE, "iso2022_jp"),
        (JAPANESE, "iso2022_jp_2004"),
        (KOREAN, "iso2022_kr"),
        ("富士山", "iso2022_jp"),
        ("ﾌｼﾞｻﾝ は富士山", "iso2022_jp_ext"),
        (f"Notes of a trip\n\n{JAPANESE}\n\nThe end.", "iso2022_jp"),
    ]:
        for name in ["a.txt", "a.md", "a.eml"]:
            with subtests.test(encoding=encoding, name=name, text=text[:20]):
                head = b"Subject: x\n\n" if name == "a.eml" else b""
                assert text in parse(name, head + text.encode(encoding)).text


def test_characters_that_windows_added_to_iso_2022_jp_are_read():
    """No codec of Python reads these with half-width kana in one text: each line is read by itself."""
    body = b"\x1b$B-!-i\x1b(B\n\x1b(I6E\x1b(B\n" + "富士山".encode("iso2022_jp")
    assert parse("a.txt", body).text == "①Ⅴ\nｶﾅ\n富士山".replace("Ⅴ", b"\x1b$(Q-i\x1b(B".decode("iso2022_jp_2004"))


def test_a_table_in_iso_2022_jp_keeps_its_header():
    rows = "山,高さ\n富士山,3776\n北岳,3193\n"
    assert parse("a.csv", rows.encode("iso2022_jp")).text == parse("a.csv", rows.encode()).text


def test_broken_places_in_iso_2022_jp_are_replaced():
    body = JAPANESE.encode("iso2022_jp").replace("標高".encode("iso2022_jp")[3:7], b"\x7f\x7f\x7f\x7f")
    text = parse("a.txt", body).text
    assert JAPANESE[:12] in text
    assert JAPANESE[-20:] in text
    assert "\ufffd" in text


def test_a_declared_encoding_is_the_one_that_browsers_read_by_that_name(subtests: pytest.Subtests):
    """Programs write characters that the older standard of the name does not have."""
    for label, encoding, text in [
        ("gb2312", "gb18030", "朱镕基"),
        ("GBK", "gb18030", "朱镕基㐂"),
        ("x-gbk", "gb18030", "朱镕基"),
        ("shift_jis", "cp932", "①髙島屋"),
        ("x-sjis", "cp932", "①髙島屋"),
        ("windows-31j", "cp932", "①髙島屋"),
        ("euc-kr", "cp949", "똠방각하"),
        ("ks_c_5601-1987", "cp949", "똠방각하"),
        ("windows-949", "cp949", "똠방각하"),
        ("x-euc-jp", "euc_jp", "富士山"),
        ("big5", "big5hkscs", "咗嘅"),
        ("cn-big5", "big5", "臺灣"),
        ("iso-8859-8-i", "iso8859-8", "חיפה"),
        ("koi8-ru", "koi8-u", "Київ"),
    ]:
        with subtests.test(label=label):
            page = f'<html><meta charset="{label}"><p>{text}</p>'
            assert parse("a.html", page.encode(encoding)).text == text


def test_hz_is_read():
    assert parse("a.txt", SIMPLIFIED.encode("hz")).text == SIMPLIFIED


@pytest.mark.parametrize(
    "text",
    [
        '(format t "~{~a~^, ~}~%" names) ; ~{NAME~} and ~{VALUE~}\n' * 50,
        "A place for ~{NAME~}, and one for ~{ADDRESS~}.\n" * 100,
        "\x1b[31mred\x1b[0m and \x1b(Bplain\n" * 20,
    ],
)
def test_signs_of_other_uses_do_not_make_seven_bit_text(text: str):
    assert parse("a.txt", text.encode()).text == parse("a.txt", text.encode() + "é".encode()).text[:-1].rstrip()


def test_bytes_that_are_no_text_are_refused():
    dice = random.Random(9)
    packed = zlib.compress("".join(map(chr, dice.choices(range(32, 126), k=20_000))).encode())
    for body in (
        bytes(dice.choices([*range(32, 127), *range(128, 256)], k=5_000)),
        bytes(dice.choices(range(0xA1, 0xFF), k=5_000)),
        b" ".join(bytes(dice.choices(range(0xC0, 0x100), k=7)) for _ in range(700)),
        b"".join(bytes((dice.randint(0xB0, 0xF7), dice.randint(0xA1, 0xFE))) for _ in range(2_500)),
        b"".join(bytes((dice.randint(0x81, 0xFE), dice.randint(0x40, 0x7E))) for _ in range(2_500)),
        packed.translate(None, bytes(range(32))),
    ):
        with pytest.raises(Rejected):
            parse("a.txt", body)


POLISH = "<html><head>{}<title>x</title></head><body><p>Łódź i Kraków śpią pod śniegiem.</p></body></html>"


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("a.xhtml", '<?xml version="1.0" encoding="iso-8859-2"?>\n' + POLISH.format("")),
        ("a.eml", "Content-Type: text/html\n\n" + POLISH.format('<meta charset="iso-8859-2">')),
        (
            "a.mht",
            "MIME-Version: 1.0\nContent-Type: multipart/related; boundary=b\n\n--b\nContent-Type: text/html\n\n"
            "<?xml version='1.0' encoding='iso-8859-2'?>" + POLISH.format("") + "\n--b--\n",
        ),
    ],
)
def test_the_encoding_that_a_page_declares_is_used_wherever_it_stands(name: str, page: str):
    assert parse(name, page.encode("iso-8859-2")).text == "Łódź i Kraków śpią pod śniegiem."


def test_the_encoding_that_a_chapter_of_a_book_declares_is_used():
    chapter = f'<?xml version="1.0" encoding="iso-8859-2"?>{POLISH.format("")}'.encode("iso-8859-2")
    assert parse("a.epub", epub([""], **{"OPS/text/c 0.xhtml": chapter})).text == "Łódź i Kraków śpią pod śniegiem."


@pytest.mark.parametrize(
    ("head", "page"),
    [
        ("Content-Type: text/html; charset=iso-8859-2\n\n", POLISH.format('<meta charset="koi8-r">')),
        ("", '<?xml version="1.0" encoding="utf-8"?>' + POLISH.format('<meta charset="iso-8859-2">')),
    ],
)
def test_a_mail_s_own_encoding_goes_before_that_of_its_page_and_that_before_an_xml_declaration(head: str, page: str):
    parsed = parse("a.eml" if head else "a.html", (head + page).encode("iso-8859-2"))
    assert parsed.text == "Łódź i Kraków śpią pod śniegiem."


def test_text_that_goes_on_in_another_encoding_is_refused():
    body = JAPANESE.encode("shift-jis") + b"\n" + RUSSIAN.encode("koi8-r")
    with pytest.raises(Rejected, match="save it as UTF-8"):
        parse("a.txt", body)


@pytest.mark.parametrize(
    "block",
    [
        SIMPLIFIED.encode("gbk"),
        RUSSIAN.encode("koi8-r") + b"\n",
        b"\xe9",
        b"a" * 200_000 + b"\xe9" * 50_000,
        b"a " * 100_000 + b"\xe9" * 60_000,
        b"\xb0\xa1" * 10_000 + b" " * 20_000,
    ],
)
def test_the_guess_is_bounded_at_any_size(block: bytes):
    """Only a sample is measured: beyond the decoding itself a large file costs little more than a small one."""
    body = block * (8 * 1024 * 1024 // len(block))
    began = time.process_time()
    has_wide_words(body)
    guess_encoding(body)
    assert time.process_time() - began < 2


@pytest.fixture(scope="module")
def parser() -> Iterator[Parser]:
    settings = Settings()
    parser = Parser(Limits(settings.parse_seconds, settings.parse_memory_mib))
    yield parser
    parser.close()


def read(parser: Parser, body: bytes) -> str:
    with tempfile.TemporaryFile() as file:
        file.write(body)
        file.seek(0)
        return parser.parse("a.txt", file).text
