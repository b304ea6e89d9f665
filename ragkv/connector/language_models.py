"""vLLM's models for the language models of checkpoints that see images too: what sees is not loaded.

vLLM's own models of these checkpoints prepare images, which needs more packages and reserves memory.
`ragkv.engine.launch` registers these.
"""

from collections.abc import Iterable

import torch
from vllm.config import VllmConfig
from vllm.model_executor.models.gemma3 import Gemma3ForCausalLM
from vllm.model_executor.models.llama4 import Llama4ForCausalLM
from vllm.model_executor.models.mistral import MistralForCausalLM
from vllm.model_executor.models.utils import WeightsMapper

from ragkv.kv.layout import language_model_of

_SEEING = ("vision_tower.", "vision_model.", "multi_modal_projector.")
_NAMES = WeightsMapper(
    orig_to_new_prefix={
        "language_model.lm_head.": "lm_head.",
        "language_model.model.": "model.",
        "model.language_model.": "model.",
        **{f"{whole}{part}": None for whole in ("", "model.") for part in _SEEING},
    }
)
"""Names of weights, as checkpoints before and since Transformers 5 have them."""


def _of_language_model(vllm_config: VllmConfig) -> VllmConfig:
    return vllm_config.with_hf_config(language_model_of(vllm_config.model_config.hf_config))


class Gemma3LanguageModel(Gemma3ForCausalLM):
    """Gemma 3 of 4, 12 and 27 billion parameters."""

    hf_to_vllm_mapper = _NAMES | Gemma3ForCausalLM.hf_to_vllm_mapper

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=_of_language_model(vllm_config), prefix=prefix)


class _OfCheckpoint:
    """A language model that reads a checkpoint's names of weights."""

    hf_to_vllm_mapper = _NAMES

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=_of_language_model(vllm_config), prefix=prefix)  # type: ignore[call-arg]

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        loaded: set[str] = super().load_weights(_NAMES.apply(weights))  # type: ignore[misc]
        return loaded


class Llama4LanguageModel(_OfCheckpoint, Llama4ForCausalLM):
    """Llama 4 Scout and Maverick."""


class Mistral3LanguageModel(_OfCheckpoint, MistralForCausalLM):
    """Mistral Small 3.1 and 3.2, Ministral 3."""
