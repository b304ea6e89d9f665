"""The served model's tokenizer. Text from documents and users never becomes a special token."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import TemplateError

from ragkv.errors import Rejected

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Tokenizer:
    """Text to token ids and back, for one model."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        if not tokenizer.is_fast:
            raise Rejected("the model's tokenizer keeps no character offsets (it is not a fast tokenizer)")
        self._tokenizer = tokenizer
        # Of untrusted text: what looks like a special token is spelled out in ordinary ones.
        self._spelled_out = partial(tokenizer, add_special_tokens=False, split_special_tokens=True, verbose=False)

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """The tokenizer in a model folder. Raises Rejected if there is none."""
        from transformers import AutoTokenizer  # noqa: PLC0415 - two seconds, which most commands can do without

        try:
            return cls(AutoTokenizer.from_pretrained(folder))
        except (OSError, ValueError) as error:
            raise Rejected(f"{folder} holds no tokenizer: {error}") from None

    def encode(self, text: str) -> list[int]:
        """Ids of untrusted text: none is that of a special token."""
        return list(self._spelled_out(text)["input_ids"])

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """`encode` of each text, in one call: the tokenizer runs many short texts on all cores."""
        return list(self._spelled_out(texts, return_attention_mask=False)["input_ids"]) if texts else []

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Like `encode`, and the characters [start, end) of the text that each id stands for."""
        encoded = self._spelled_out(text, return_offsets_mapping=True)
        return encoded["input_ids"], encoded["offset_mapping"]

    def encode_template(self, text: str) -> list[int]:
        """Ids of our own template text, special tokens meant as such."""
        return list(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def decode(self, token_ids: list[int]) -> str:
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=True))

    def render_chat(self, instructions: str, content: str) -> str:
        """The model's own chat template as text, ready for the answer.

        Templates without a system role get the instructions at the head of the user's message; models without a
        template a plain form.
        """
        if self._tokenizer.chat_template is None:
            return f"{self._tokenizer.bos_token or ''}{instructions}\n\n{content}\n\nAnswer:"
        user = {"role": "user", "content": content}
        try:
            return self._rendered([{"role": "system", "content": instructions}, user])
        except TemplateError:
            return self._rendered([user | {"content": f"{instructions}\n\n{content}"}])

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Ids of a conversation, (role, text) each, in the model's own chat template, ready for the answer. The texts
        never become special tokens."""
        places = [f"\x00{index}\x00" for index in range(len(messages))]
        if self._tokenizer.chat_template is None:
            template = "".join(f"{role}: {place}\n\n" for (role, _), place in zip(messages, places, strict=True))
            template = f"{self._tokenizer.bos_token or ''}{template}assistant:"
        else:
            roles = [{"role": role, "content": place} for (role, _), place in zip(messages, places, strict=True)]
            try:
                template = self._rendered(roles)
            except TemplateError:  # without a system role, or with roles that do not take turns
                template = self._rendered([{"role": "user", "content": "\n\n".join(places)}])
        ids: list[int] = []
        for place, (_, text) in zip(places, messages, strict=True):
            part, _, template = template.partition(place)
            ids += [*self.encode_template(part), *self.encode(text)]
        return ids + self.encode_template(template)

    def _rendered(self, messages: list[dict[str, str]]) -> str:
        text: str = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return text
