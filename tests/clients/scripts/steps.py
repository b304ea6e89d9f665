"""Where the service is, what it is asked, and how a script says what its client has done."""

import os

ROOT, KEY, STORE = (os.environ[f"CLIENT_{name}"] for name in ("URL", "KEY", "STORE"))
URL = f"{ROOT}/v1"
MODEL = "SmolLM2-135M-Instruct"
MODEL_AT = f"{MODEL}@{STORE}"
"""The model, and the collection in its name."""
QUESTION = "Who composed the music of Billy Elliot?"
NEXT = "When was it released?"
FILE_SEARCH = {"type": "file_search", "vector_store_ids": [STORE]}
AS_KEY = {"Authorization": f"Bearer {KEY}"}


def did(step: str, *facts: object) -> None:
    """Say that the client did this. Raises AssertionError unless all facts hold."""
    assert all(facts), (step, facts)
    print(step, flush=True)
