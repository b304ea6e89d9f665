"""Interpreters of the installed clients, and the examples of docs/OPENAI.md as programs."""

from tests.clients.tables import HERE, Row, examples

ROOT = HERE.parents[1]
STORE = "papers"
EXAMPLE_QUESTION = '"What did the report find?"'
NEEDS_OPENAI_2 = "LlamaIndex"


def interpreter(row: Row) -> str:
    """The program that runs a client's script."""
    if row.script.endswith(".mjs"):
        return str(HERE / "node_modules" / ".bin" / "node")  # newer than that of most machines
    return python(openai_2=row.needs_openai_2)


def python(*, openai_2: bool) -> str:
    return str(ROOT / (".venv-clients-openai2" if openai_2 else ".venv-clients") / "bin" / "python")


def example_command(framework: str, url: str, key: str, model: str) -> list[str]:
    """The framework's example at this address."""
    return [python(openai_2=framework == NEEDS_OPENAI_2), "-c", filled(examples()[framework], url, key, model)]


def filled(code: str, url: str, key: str, model: str) -> str:
    """An example with an address, key and model in place of its own."""
    for shown, real in {"http://127.0.0.1:8000": url, "rk_...": key, "SmolLM2-135M-Instruct": model}.items():
        code = code.replace(shown, real)
    return code
