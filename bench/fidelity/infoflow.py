"""vLLM's connector that selects by InfoFlow KV (arXiv 2603.05353) as well: for comparison, in measuring engines alone.

The whole question runs through the model in place, as under policy `question`, and the tokens to which its attention
has the largest norm are recomputed. As in its authors' code (github.com/tx467/InfoFlow-KV): weights of the model's own
softmax, over prefix, chunks and question, at true positions; their mean over heads; its L2 norm over the question's
tokens; the mean over four layers (`bench.fidelity.methods.infoflow_layers`).
"""

import torch

from bench.fidelity.methods import INFOFLOW
from ragkv.connector.connector import StitchConnector
from ragkv.connector.internals import ModelInternals
from ragkv.connector.latent import Queries
from ragkv.connector.metadata import StitchRequest
from ragkv.connector.select import SCORES, Stitched, candidates_of, run_question
from ragkv.span import total_tokens
from ragkv.stitch.policies import POLICIES, Policy
from ragkv.stitch.select import causal_attention_weights

__all__ = ["StitchConnector"]  # what vLLM looks for here


def question_norms(model: ModelInternals, stitch: StitchRequest, stitched: Stitched) -> torch.Tensor:
    """Norm of the question's attention to each token, over all of its queries: of means over heads, summed over layers.
    [tokens] float32.

    Zeros if the question is not run. What was in vLLM's own cache before, and chunks whose KV is missing, are not in
    the softmax.
    """
    num_candidates = total_tokens(part.span for part in candidates_of(stitch, stitched))
    norms = torch.zeros(num_candidates, device=model.device)
    end = stitched.num_tokens

    def on_layer(layer: int, queries: Queries, own: torch.Tensor) -> None:
        keys = torch.cat([stitched.keys[layer], own])
        weights = causal_attention_weights(queries[:], keys)
        norms.add_(model.ranks.mean(weights[:, end - num_candidates : end]).norm(dim=0))

    run_question(model, stitch, on_layer)
    return norms


POLICIES[INFOFLOW] = Policy(INFOFLOW, "", in_engine=True, block_size=1)  # type: ignore[arg-type]  # not the product's
SCORES[INFOFLOW] = question_norms
