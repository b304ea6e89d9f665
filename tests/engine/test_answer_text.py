"""An answer's text: vLLM decodes its tokens behind the end of their prompt."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer, TokenizersBackend
from vllm import SamplingParams
from vllm.v1.engine import EngineCoreRequest, detokenizer

from ragkv.engine.launch import extend_vllm

WHOLE = detokenizer.FastIncrementalDetokenizer


@pytest.fixture(autouse=True)
def extended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detokenizer, "FastIncrementalDetokenizer", WHOLE)
    extend_vllm.__wrapped__()


def decoded(tokenizer: TokenizersBackend, prompt: list[int], answer: list[int]) -> tuple[str, str]:
    """The answer's text behind the whole prompt, as by vLLM itself, and as it is decoded now."""
    request = EngineCoreRequest("one", prompt, None, SamplingParams(), None, 0.0, None, None, None)
    both = WHOLE(tokenizer, request), detokenizer.IncrementalDetokenizer.from_new_request(tokenizer, request)
    for behind in both:
        behind.update(answer, stop_terminated=False)
    by_vllm, now = (behind.output_text for behind in both)
    return by_vllm, now


@pytest.mark.parametrize("answer", [" Oslo, in 1932.", "Ærøskøbing 🇩🇰 日本語", "<|im_start|>x", "\n\n  - 1"])
@pytest.mark.parametrize("end", ["", "<|im_end|>\n<|im_start|>assistant\n", "wie heißt es? 日本", " 🇩🇰" * 20, " "])
def test_it_is_the_text_behind_the_whole_prompt(language_model: Path, answer: str, end: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(language_model)
    prompt = tokenizer.encode("Ein langer Text, in dem von Œuvres und 北京 die Rede ist. " * 40 + end)
    by_vllm, now = decoded(tokenizer, prompt, tokenizer.encode(answer))
    assert now == by_vllm != ""


def test_no_more_than_the_end_is_decoded(language_model: Path) -> None:
    """What vLLM decodes of a prompt it repeats before an answer that completes the prompt's last character."""
    tokenizer = AutoTokenizer.from_pretrained(language_model)
    *prompt, last = tokenizer.encode("word " * 1000 + "𒀀")
    by_vllm, now = decoded(tokenizer, prompt, [last])
    assert by_vllm.count("word") == 1000
    assert now.count("word") < 40
