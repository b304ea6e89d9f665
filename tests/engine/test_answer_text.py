"""An answer's text: vLLM decodes its tokens behind the end of their prompt."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer
from vllm import SamplingParams
from vllm.v1.engine import EngineCoreRequest, detokenizer

from ragkv.engine.launch import extend_vllm

WHOLE = detokenizer.FastIncrementalDetokenizer


@pytest.fixture(autouse=True)
def extended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detokenizer, "FastIncrementalDetokenizer", WHOLE)
    extend_vllm()


def request(prompt: list[int]) -> EngineCoreRequest:
    return EngineCoreRequest("one", prompt, None, SamplingParams(), None, 0.0, None, None, None)


@pytest.mark.parametrize("answer", [" Oslo, in 1932.", "Ærøskøbing 🇩🇰 日本語", "<|im_start|>x", "\n\n  - 1"])
@pytest.mark.parametrize("end", ["", "<|im_end|>\n<|im_start|>assistant\n", "wie heißt es? 日本", " 🇩🇰" * 20, " "])
def test_it_is_the_text_behind_the_whole_prompt(language_model: Path, answer: str, end: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(language_model)
    prompt = tokenizer.encode("Ein langer Text, in dem von Œuvres und 北京 die Rede ist. " * 40 + end)
    token_ids = tokenizer.encode(answer)
    behind_all, behind_the_end = (
        WHOLE(tokenizer, request(prompt)),
        detokenizer.IncrementalDetokenizer.from_new_request(tokenizer, request(prompt)),
    )
    behind_all.update(token_ids, stop_terminated=False)
    behind_the_end.update(token_ids, stop_terminated=False)
    assert behind_the_end.output_text == behind_all.output_text != ""


def test_no_more_than_the_end_is_decoded(language_model: Path) -> None:
    """What vLLM decodes of a prompt it repeats before an answer that completes the prompt's last character."""
    tokenizer = AutoTokenizer.from_pretrained(language_model)
    *prompt, last = tokenizer.encode("word " * 1000 + "𒀀")
    behind_all, behind_the_end = (
        WHOLE(tokenizer, request(prompt)),
        detokenizer.IncrementalDetokenizer.from_new_request(tokenizer, request(prompt)),
    )
    behind_all.update([last], stop_terminated=False)
    behind_the_end.update([last], stop_terminated=False)
    assert behind_all.output_text.count("word") == 1000
    assert behind_the_end.output_text.count("word") < 40
