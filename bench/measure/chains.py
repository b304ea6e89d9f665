"""Twelve questions asked plainly, by each framework's chain of docs/OPENAI.md, and with retrieved text in the message.

`make test-clients` installs the frameworks; then `.venv/bin/python -m bench.measure.chains FOLDER [MODEL]`. FOLDER is
for the service's data. Each way has a service that has just started, so that nothing is in the engine's cache.
"""

import re
import subprocess
import sys
from pathlib import Path

from ragkv.models import model_folder
from ragkv.settings import Settings
from tests.clients.programs import EXAMPLE_QUESTION, NEEDS_OPENAI_2, STORE, filled, python
from tests.clients.tables import examples
from tests.conftest import CACHE, ONE_THREAD
from tests.e2e.service import RAGKV, SAMPLE, Service, environment, started
from tests.support.over_http import free_port

QUESTIONS = {
    "Who directed the film Gaby: A True Story?": "Luis Mandoki",
    "Who directed Madame la Presidente?": "Frank Lloyd",
    "In which year was Luis Mandoki born?": "1954",
    "In which city does Luis Mandoki live?": "Mexico City",
    "In which year did Frank Lloyd die?": "1960",
    "Where was Stephen Warbeck born?": "Southampton",
    "What nationality is Peter Levin?": "American",
    "What was the population of Wales, South Yorkshire, in 2011?": "588",
    "What is the altitude of Oinochori?": "900",
    "What is Corey Snide known for?": "Billy",
    "What is the profession of Tamara Lee Story?": "politician",
    "The A5117 runs between Shotwick and a village with a 2011 population of what?": "4,972",
}
_PLAIN = """
from openai import OpenAI
client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="rk_...")
text = "What did the report find?"
completion = client.chat.completions.create(
    model="SmolLM2-135M-Instruct@papers", messages=[{"role": "user", "content": text}]
)
print(completion.choices[0].message.content)
"""
_RETRIEVED = _PLAIN.replace(
    "completion =",
    """found = client.vector_stores.search("papers", query=text, max_num_results=4)
context = "\\n\\n".join(result.content[0].text for result in found)
text = f"Answer from the context.\\n\\nContext:\\n{context}\\n\\nQuestion: {text}"
completion =""",
)
_ORIGIN = re.compile(r'^ragkv_prompt_tokens_total\{origin="(\w+)"\} (\S+)$', re.MULTILINE)
_END = "-- next --"


def main(folder: Path, model: str | None = None) -> None:
    environ = environment(folder / "data", model or model_folder(Settings(data_dir=CACHE))) | ONE_THREAD
    command = [RAGKV, "keys", "create", "--name", "chains", "--scope", "admin"]
    key = subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout.strip()
    plain: list[str] = []
    for way, code in {"plain": _PLAIN, **examples(), "retrieved by the client": _RETRIEVED}.items():
        with started(environ, free_port(), folder / "serve.log") as service:
            service.client.headers["Authorization"] = f"Bearer {key}"
            service.wait_ready()
            if service.client.get(f"/v1/vector_stores/{STORE}").status_code != 200:
                store = service.client.post("/v1/vector_stores", json={"name": STORE}).json()["id"]
                for path in sorted(SAMPLE.iterdir()):
                    form = {"files": {"file": (path.name, path.read_bytes())}, "data": {"collection": store}}
                    document_id = service.client.post("/v1/documents", **form).json()["id"]
                    assert service.finished(document_id)["status"] == "ready"
            before = _computed(service)
            answers = _answers(way, code, service, key)
            tokens = (_computed(service) - before) / len(QUESTIONS)
        plain = plain or answers
        right = sum(word.lower() in answer.lower() for word, answer in zip(QUESTIONS.values(), answers, strict=True))
        same = sum(one == other for one, other in zip(plain, answers, strict=True))
        print(f"{way}: {right} of {len(QUESTIONS)} right, {same} as asked plainly, {tokens:.0f} prompt tokens computed")


def _answers(way: str, code: str, service: Service, key: str) -> list[str]:
    """Run an example once for each question, all in one process."""
    served = service.client.get("/v1/models").json()["data"][0]["id"].partition("@")[0]
    example = filled(code, str(service.client.base_url).rstrip("/"), key, served)
    program = (
        f"for question in {list(QUESTIONS)!r}:\n"
        f"    exec({example!r}.replace({EXAMPLE_QUESTION!r}, repr(question)))\n"
        f"    print({_END!r})"
    )
    command = [python(openai_2=way == NEEDS_OPENAI_2), "-c", program]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [answer.strip() for answer in printed.split(_END)[:-1]]


def _computed(service: Service) -> float:
    """Prompt tokens that the engine has computed."""
    origins = dict(_ORIGIN.findall(service.client.get("/metrics").text))
    return sum(float(origins.get(origin, 0)) for origin in ("recomputed", "computed"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
