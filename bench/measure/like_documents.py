"""Documents of one form, and questions about one of them: `python -m bench.measure.like_documents CORPUS QUESTIONS`.

Two files for `ragkv eval retrieval`: contracts, CVs, invoices and manuals, 200 of each, whose first passage alone says
which one it is; and handbooks, which only the names of their files tell apart. The passage that a question asks for is
that of the others, but for a number.
"""

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import msgspec

NUM_DOCUMENTS, ASKED = 200, 25
"""Of each form."""

BEGINNINGS = ("Vest", "Har", "Nor", "Cas", "Bri", "Kes", "Oak", "Sun", "Gran", "Tid")
ENDINGS = ("by", "low", "den", "tello", "water")
TRADES = ("Energi", "Logistics", "Foods", "Robotics")
GIVEN_NAMES = (
    "Jane Omar Lucia Pavel Aiko Ruth Diego Ingrid Hans Mei Noor Ivan Clara Tomas Elif Sean Priya Jonas Marta Kofi"
)
FAMILY_NAMES = "Doe Larsen Marino Okafor Svoboda Tanaka Weber Silva Novak Haddad"
COMPANIES = [f"{a}{b} {c}" for a, b, c in product(BEGINNINGS, ENDINGS, TRADES)]
PEOPLE = [f"{a} {b}" for a, b in product(GIVEN_NAMES.split(), FAMILY_NAMES.split())]
CITIES = ("Bergen", "Leeds", "Turin", "Lagos", "Prague", "Kyoto", "Utrecht", "Porto", "Graz", "Lund")


class Form(NamedTuple):
    """A document: its file's name, its title, its passages with their sections' names, and for questions the number of
    the passage that answers."""

    name: str
    title: str
    passages: list[tuple[str, str]]
    questions: dict[str, int]


def contract(n: int) -> Form:
    company = COMPANIES[n]
    return Form(
        f"contract-{n}.pdf",
        "Service Agreement",
        [
            ("Parties", f"This agreement is made between Meridian Services Ltd and {company} AS, the customer."),
            ("Fees", f"The customer pays a monthly fee of {1200 + 37 * n} euros within 20 days of the invoice."),
            ("Liability", f"Liability is limited to {100 + 10 * n} thousand euros, save for wilful misconduct."),
            ("Termination", f"Either party may terminate by giving not less than {10 + n} days of notice."),
            ("Law", "This agreement is governed by the law of Norway. The courts of Oslo have jurisdiction."),
        ],
        {f"What is the notice period in the agreement with {company}?": 3, f"What fee does {company} pay a month?": 1},
    )


def cv(n: int) -> Form:
    person = PEOPLE[n]
    return Form(
        f"cv-{n}.pdf",
        "Curriculum vitae",
        [
            ("", f"{person}, born {1960 + n % 40}, lives in {CITIES[n * 3 % 10]}."),
            ("Education", f"{2000 + n % 20}: Master of Science, University of {CITIES[n % 10]}."),
            ("Experience", f"Since {2005 + n % 18} engineer in a team of {2 + n % 9}; before, trainee."),
            ("Languages", f"English (fluent), {('German', 'French', 'Polish')[n % 3]} (good)."),
        ],
        {f"Where did {person} study for the master?": 1, f"Which languages does {person} speak?": 3},
    )


def invoice(n: int) -> Form:
    number = f"INV-{20_000 + 37 * n}"
    return Form(
        f"invoice-{n}.pdf",
        "Invoice",
        [
            ("", f"Invoice {number} to {COMPANIES[n * 7 % 200]} AS, {1 + n % 28} May 2024."),
            ("", f"{1 + n % 9} pumps at {40 + n} euros. {2 + n % 5} filters at {11 + n % 13} euros. Freight."),
            ("", f"Sum before tax {900 + 13 * n} euros. The total of {1125 + 16 * n} euros is due in 14 days."),
        ],
        {f"What is the total of invoice {number}?": 2, f"How many pumps were sold by invoice {number}?": 1},
    )


def manual(n: int) -> Form:
    model = f"{('XR', 'KT', 'PM', 'VQ')[n % 4]}-{110 + 10 * (n // 4)}"
    return Form(
        f"manual-{n}.pdf",
        "User manual",
        [
            ("Introduction", f"Thank you for buying the {model} vacuum pump. Read this before use."),
            ("Safety", "Disconnect the device from the mains before cleaning. Keep children away."),
            ("Maintenance", f"Clean the filter every {10 + 5 * n} hours. Replace the oil each year."),
            ("Technical data", f"Weight {4 + n} kg. Power {500 + 50 * n} W. Noise {40 + n % 40} dB."),
        ],
        {f"How often must the filter of the {model} be cleaned?": 2, f"How much does the {model} weigh?": 3},
    )


def handbook(n: int) -> Form:
    name = f"handbook_{COMPANIES[n].replace(' ', '_').lower()}.pdf"
    return Form(
        name,
        "Employee handbook",
        [
            ("Leave", f"Each employee has {20 + n} days of paid leave a year."),
            ("Hours", f"The working week has {30 + n % 10} hours. Overtime is paid."),
            ("Travel", f"Trips are paid up to {100 + n} euros a day."),
        ],
        {
            f"How many days of leave are there according to {name}?": 0,
            f"What is paid for trips in the {COMPANIES[n]} handbook?": 2,
        },
    )


def lines() -> Iterator[tuple[dict[str, object], bool]]:
    """Each passage and each question, which True marks."""
    for form, n in product((contract, cv, invoice, manual, handbook), range(NUM_DOCUMENTS)):
        document, title, passages, questions = form(n)
        for number, (section, text) in enumerate(passages):
            section_title = f"{title}: {section}" if section else title
            yield {"id": f"{document}, {number}", "title": section_title, "text": text, "document": document}, False
        if n % (NUM_DOCUMENTS // ASKED) == 0:
            for question, number in questions.items():
                yield {"question": question, "gold_ids": [f"{document}, {number}"]}, True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("questions", type=Path)
    paths = parser.parse_args()
    for path, is_question in ((paths.corpus, False), (paths.questions, True)):
        path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line, asked in lines() if asked == is_question))


if __name__ == "__main__":
    main()
