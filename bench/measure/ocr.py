"""Measures OCR on real scans, as a Markdown table: `python -m bench.measure.ocr FOLDER`.

The character error rate is the edit distance to a transcription, for each of its characters; in any order, that of the
sorted words. Seconds are those of one core.
"""

import sys
import time
from pathlib import Path

from ingest.ocr.rapid import Recogniser
from ingest.parse import parse
from ingest.parse.scan import OCR

DOCLING = "Docling bundles PDF document conversion to JSON and Markdown in an easy self contained package"
LETTER = """THE SLEREXE COMPANY LIMITED SAPORS LANE - BOOLE - DORSET - BH 25 8 ER
TELEPHONE BOOLE (945 13) 51617 - TELEX 123456
Our Ref. 350/PJC/EAC 18th January, 1972.
Dr. P.N. Cundall, Mining Surveys Ltd., Holroyd Road, Reading, Berks.
Dear Pete,
Permit me to introduce you to the facility of facsimile transmission.
In facsimile a photocell is caused to perform a raster scan over the subject copy. The variations of print density on
the document cause the photocell to generate an analogous electrical video signal. This signal is used to modulate a
carrier, which is transmitted to a remote destination over a radio or cable communications link.
At the remote terminal, demodulation reconstructs the video signal, which is used to modulate the density of print
produced by a printing device. This device is scanning in a raster scan synchronised with that at the transmitting
terminal. As a result, a facsimile copy of the subject document is produced.
Probably you have uses for this facility in your organisation.
Yours sincerely, Phil. P.J. CROSS Group Leader - Facsimile Research
Registered in England: No. 2038 No. 1 Registered Office: 60 Vicara Lane, Ilford. Essex."""
BILL = """Fictitious example for illustration purposes
Ms Pia Rutschmann Marktgasse 28 9400 Rorschach
Robert Schneider AG Rue du Lac 1268 2501 Biel Telefon: 059/987 6540 Mobil: 079/987 65 43
E-Mail: robert@rschneider.ch Internet: www.rschneider.ch Date: 01.07.2020
Dear Ms. Rutschmann,
We are billing you as follows for completion of the assigned activities:
Bill no. 3139
Item Description Amount Individual price Total
1 Garden work 28 Std. CHF 120.00 CHF 3`360.00
2 Disposal of cuttings 1 CHF 307.35 CHF 307.35
sum CHF 3`667.35
VAT rate 7.7 %
VAT amount CHF 282.40
Bill amount CHF 3`949.75
Thank you for the assignment. Please pay the bill amount within 30 days.
Yours sincerely, Robert Schneider
Receipt Account / Payable to CH58 0079 1123 0008 8901 2 Robert Schneider AG Rue du Lac 1268 2501 Biel
Payable by Pia Rutschmann Marktgasse 28 9400 Rorschach Currency Amount CHF 3 949.75 Acceptance point
Payment part Currency Amount CHF 3 949.75
Account / Payable to CH58 0079 1123 0008 8901 2 Robert Schneider AG Rue du Lac 1268 2501 Biel
Additional information Bill No. 3139 for garden work and disposal of cuttings
Payable by Pia Rutschmann Marktgasse 28 9400 Rorschach"""
TRUTH = {
    "ocr_test.pdf": DOCLING,
    "ocr_test_rotated_90.pdf": DOCLING,
    "ocr_test_rotated_180.pdf": DOCLING,
    "ocr_test_rotated_270.pdf": DOCLING,
    "webp-test.webp": DOCLING,
    "nemotron_multipage.pdf": " ".join([DOCLING] * 4),
    "sample_with_rotation_mismatch.pdf": LETTER,
    "qr_bill_example.jpg": BILL,
}


def distance(one: str, other: str) -> int:
    """Insertions, deletions and exchanges of characters that make one text the other (Levenshtein)."""
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, start=1):
        diagonal, row[0] = row[0], number
        for place, wanted in enumerate(other, start=1):
            diagonal, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, diagonal + (letter != wanted))
    return row[-1]


def main(folder: Path) -> None:
    ocr = OCR(max_pages=100, recognise=Recogniser())
    print("| file | pages | characters | errors | CER | CER, words in any order | seconds a page |")
    print("|---|---|---|---|---|---|---|")
    for path in sorted(path for path in folder.rglob("*") if path.name in TRUTH):
        began = time.process_time()
        parsed = parse(path.name, path.read_bytes(), ocr)
        seconds = (time.process_time() - began) / len(parsed.scans)
        truth, words = TRUTH[path.name].split(), parsed.text.split()
        length, errors = len(" ".join(truth)), distance(" ".join(words), " ".join(truth))
        unordered = distance(" ".join(sorted(words)), " ".join(sorted(truth)))
        shares = f"{errors / length:.2%} | {unordered / length:.2%}"
        print(f"| {path.name} | {len(parsed.scans)} | {length:,} | {errors} | {shares} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
