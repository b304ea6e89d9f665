"""Commands and links in the documentation are those that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from api.v1.documents import documents_router, upload_many
from ragkv.cli import main
from ragkv.prefill.writer import SUFFICIENT_KL
from ragkv.settings import Settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("operations/*.md"), *DOCS.glob("log/*.md")])
HISTORY = {"CHANGELOG.md", "DECISIONS.md", *(page.name for page in PAGES if page.parent.name == "log")}
COMMAND = re.compile(r"\bragkv((?: [a-z][a-z-]*)+)([^`|\n]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Every command below this one with the options that it takes."""
    yield path, {"--help"}.union(*(option.opts + option.secondary_opts for option in command.params))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if (found := command.get_command(context, name)) is not None:
                yield from commands(found, (*path, name))


COMMANDS = dict(commands(main))


def longest_command(words: list[str]) -> tuple[str, ...]:
    """The command that the words begin with: further words are its arguments."""
    return max((tuple(words[:n]) for n in range(len(words) + 1) if tuple(words[:n]) in COMMANDS), key=len)


def anchors(page: Path) -> set[str]:
    """Names of the page's headings in links: lower case, spaces as hyphens, no punctuation."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_option_of_a_command_exists(subtests: pytest.Subtests):
    for page in [page for page in PAGES if page.name not in HISTORY]:
        with subtests.test(page.name):
            unknown = [
                f"ragkv {' '.join(name)} {option}"
                for words, rest in COMMAND.findall(page.read_text())
                if (name := longest_command(words.split()))
                for option in OPTION.findall(rest)
                if option not in COMMANDS[name]
            ]

            assert unknown == []


def test_every_link_within_the_documentation_leads_somewhere(subtests: pytest.Subtests):
    for page in PAGES:
        with subtests.test(page.name):
            broken = []
            for target in LINK.findall(page.read_text()):
                name, _, anchor = target.partition("#")
                if "://" in target or target.startswith("mailto:"):
                    continue
                file = (page.parent / name).resolve() if name else page
                if not file.exists() or (anchor and anchor not in anchors(file)):
                    broken.append(target)

            assert broken == []


def test_the_limit_for_nothing_recomputed_is_the_one_in_force(subtests: pytest.Subtests):
    for page in ["README.md", "docs/GUIDE.md", "docs/SETTINGS.md"]:
        with subtests.test(page):
            stated = re.findall(r"KL below (0\.\d+)", (ROOT / page).read_text())

            assert set(map(float, stated)) == {SUFFICIENT_KL}


def test_the_proxy_of_the_guide_lets_batches_of_files_through():
    (mib,) = re.findall(r"client_max_body_size (\d+)m;", (DOCS / "operations" / "run.md").read_text())
    documents_router(settings := Settings())

    assert upload_many.request_max_body_size <= int(mib) << 20 < 5 * settings.max_upload_bytes


def test_pictures_and_reports_are_those_that_a_page_names():
    text = "".join(page.read_text() for page in PAGES)
    files = [*DOCS.glob("*.png"), *DOCS.glob("screenshots/*"), *DOCS.glob("measured/*")]
    assert [file.name for file in files if file.name not in text] == []


def test_the_first_pages_stay_short(subtests: pytest.Subtests):
    for page, limit in {"README.md": 8_192, "docs/BENCHMARKS.md": 40_000}.items():
        with subtests.test(page):
            assert (ROOT / page).stat().st_size <= limit
