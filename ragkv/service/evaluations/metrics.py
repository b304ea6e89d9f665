"""Metrics: answer quality, divergence of distributions, confidence intervals of means. Pure functions."""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]

DRAWS = 2000
FAILURE_KL = 0.5
"""Nats a token: an answer further from full prefill's is a failure of its own, not a little noise."""
KL_FLOOR = 1e-4
_LOW, _HIGH = 2.5, 97.5
_LEAST_LEFT = 1e-6  # of a probability in float32
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """Normalise an answer as SQuAD does: lower case, no punctuation, no articles, single spaces."""
    bare = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    """1 if the answer is one of the accepted ones, else 0."""
    return float(normalised(answer) in {normalised(text) for text in accepted})


def best_f1(answer: str, accepted: Sequence[str]) -> float:
    """F1 over the multisets of words, against the accepted answer it is nearest to. In [0, 1]."""
    words = Counter(normalised(answer).split())
    accepted_words = [Counter(normalised(text).split()) for text in accepted]
    sums = [(2 * (words & other).total(), words.total() + other.total()) for other in accepted_words]
    return max(shared / total if total else 1.0 for shared, total in sums)  # no words are the same as no words


def mean_nll(log_probs: Floats, token_ids: Sequence[int]) -> float:
    """Negative log-likelihood a token, in nats. log_probs: [tokens, vocabulary], row i before token i was seen."""
    return -float(np.mean([row[token] for row, token in zip(log_probs, token_ids, strict=True)], dtype=np.float64))


def mean_kl(reference: Floats, other: Floats) -> float:
    """KL(reference || other) in nats, averaged over positions. Both: log probabilities [positions, vocabulary]."""
    assert reference.shape == other.shape, "distributions over the same positions and vocabulary"
    log_p, log_q = reference.astype(np.float64), other.astype(np.float64)
    p = np.exp(log_p)
    with np.errstate(invalid="ignore"):  # zero probability contributes nothing, but 0 * -inf is NaN
        terms = np.where(p > 0, p * (log_p - log_q), 0.0)
    return float(terms.sum(-1).mean())


def likeliest_kl(reference: Mapping[int, float], other: Mapping[int, float]) -> float:
    """KL(reference || other) in nats over the tokens that both name, all others taken as one. Both: log probabilities
    of the likeliest tokens. Never above the KL over the whole vocabulary, and near it where little is left to the
    others."""
    shared = reference.keys() & other.keys()
    log_p = np.array([reference[token] for token in shared], np.float64)
    log_q = np.array([other[token] for token in shared], np.float64)
    p, q = np.exp(log_p), np.exp(log_q)
    left_p, left_q = max(1 - p.sum(), 0.0), max(1 - q.sum(), _LEAST_LEFT)
    named = np.where(p > 0, p * (log_p - log_q), 0.0).sum()
    return max(float(named + (left_p * np.log(left_p / left_q) if left_p > _LEAST_LEFT else 0.0)), 0.0)


def gain_kept(without: Floats, method: Floats, full: Floats) -> Floats:
    """The share of the context's gain that a method keeps: 1 as much as full prefill, 0 as little as no context.

    The arguments are mean NLLs. NaN where full prefill gains nothing, so that there is nothing to keep.
    """
    return ratio(without - method, without - full)


def ratio(part: Floats, whole: Floats) -> Floats:
    """part / whole, NaN where the whole is not above 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(whole > 0, part / whole, np.nan)


def geometric_ratio(ours: Floats, theirs: Floats) -> Floats:
    """The geometric mean of ours / theirs over the last axis. One question in 13 can make a mean of KLs, but not this.

    Both are taken as KL_FLOOR at least: what lies below it is rounding.
    """
    mean: Floats = np.exp((np.log(np.maximum(ours, KL_FLOOR)) - np.log(np.maximum(theirs, KL_FLOOR))).mean(-1))
    return mean


def resamples(num_questions: int, seed: int) -> NDArray[np.intp]:
    """Questions drawn with replacement, [DRAWS, num_questions]: the same draws for every method, so that they pair."""
    return np.random.default_rng(seed).integers(num_questions, size=(DRAWS, num_questions))


def interval(drawn: Floats) -> tuple[float, float] | None:
    """The middle 95% of a statistic over resamples; None if more than 2.5% of them have no value: those without one
    would be an end of it."""
    missing = np.isnan(drawn)
    if 100 * missing.mean() > _LOW:
        return None
    low, high = np.percentile(drawn[~missing], [_LOW, _HIGH])
    return float(low), float(high)
