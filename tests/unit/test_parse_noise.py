"""Files of noise are refused with the reason, unusual texts are not."""

import json
from base64 import a85encode, b64encode, b85encode
from pathlib import Path
from random import Random

import pytest

from ingest.parse import parse
from ragkv.errors import Rejected

RANDOM = Random(7)
PRINTABLE = "".join(map(chr, range(33, 127)))
BYTES = RANDOM.randbytes(3_000)
NOISE = {
    "replacement characters": ("\ufffd\ufffd a" * 200, "cannot be read"),
    "private characters of a font": ("\ue012\ue034 \ue056 a" * 200, "cannot be read"),
    "signs": ("$%&/()=?" * 200 + "abc", "almost no words"),
    "random signs": ("".join(RANDOM.choices(PRINTABLE, k=3_000)), "encoded or encrypted"),
    "lines of random signs": ("\n".join("".join(RANDOM.choices(PRINTABLE, k=60)) for _ in range(50)), "encoded"),
    "base85": (b85encode(BYTES).decode(), "encoded or encrypted"),
    "ascii85": (a85encode(BYTES, wrapcol=70).decode(), "encoded or encrypted"),
    "base64": (b64encode(BYTES).decode(), "no text but files written as base64"),
    "short base64": ("\n".join(b64encode(RANDOM.randbytes(30)).decode() for _ in range(50)), "encoded or encrypted"),
}
TEXTS = {
    "source code": Path(__file__).read_text(),
    "minified script": "!function(e,t){var n=e.a,r=t.b;for(var i=0;i<n.length;i++)r[i]=n[i]&&e[t](i)};" * 9,
    "numbers": "\n".join(f"{n / 7:.4f};{n * n};-{n}.5e-3" for n in range(100)),
    "dates": "\n".join(f"2024-01-{n % 28 + 1:02}T10:{n % 60:02}:00Z" for n in range(50)),
    "Chinese": "各位同仁，下週三的會議改到下午三點舉行，地點仍然是二樓的會議室。" * 9,
    "Thai": "วันพุธหน้าการประชุมจะเริ่มเวลาบ่ายสามโมง " * 9,
    "Hindi": "बाँध की मरम्मत मई में हुई थी और नया फाटक भारी है। " * 9,
    "a note": "ok!",
    "a short password": "xK9$#mQz!2&pL@",
    "hashes": "\n".join(RANDOM.randbytes(32).hex() for _ in range(100)),
    "a lock file": json.dumps(
        {f"package-{n}": {"integrity": b64encode(RANDOM.randbytes(32)).decode()} for n in range(50)}
    ),
    "formulas": "CC(C)CC1=CC=C(C=C1)C(C)C(=O)O\n" * 30,
    "games": "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7\n" * 20,
    "a sequence": "ACGTTGCAACGTAGCTAGCTAGGCTA\n" * 30,
    "tune": "|:GABc dedB|dedB dedB|c2ec B2dB|A2FA AFDF:|\n" * 20,
    "a drawing with words": "+------+\n| Pump |--->\n+------+\n" * 20,
    "icons of a font": "\ue012 Phone 12 34 56\n" * 30,
    "emoji": "ok\n" + "😀😀 👍\n" * 400,
}


def test_noise_is_refused_with_the_reason(subtests: pytest.Subtests):
    for kind, (text, reason) in NOISE.items():
        with subtests.test(kind), pytest.raises(Rejected, match=reason):
            parse("a.txt", text.encode())


def test_unusual_texts_are_read(subtests: pytest.Subtests):
    for kind, text in TEXTS.items():
        with subtests.test(kind):
            assert parse("a.txt", text.encode()).text


def test_noise_in_a_long_text_of_words_is_no_reason():
    words = "The new gate weighs 840 kg and was cast in Horten. " * 60
    assert parse("a.txt", (words + NOISE["random signs"][0][:1_500]).encode()).text
