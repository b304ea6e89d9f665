"""vLLM's scheduler: the share of the engine's steps that prefills of chunks may take."""

import time

import torch

IDLE_TOKENS, IDLE_TOKENS_OF_ACCELERATOR = 1024, 4096
"""Tokens of chunks that run in a step that serves nothing else: some tenths of a second. A question that arrives
meanwhile waits for its end."""
WAITING_S = 0.05
"""Seconds after an answer's step in which its question may ask again, as for a plan after its vectors."""
LIVELY_S = 10.0
"""Seconds after an answer's step in which the next question is expected: steps of a quarter let it in sooner."""
BESIDE_ANSWERS, BESIDE_ANSWERS_OF_ACCELERATOR = 1024, 2048
"""Tokens of chunks that run in a step that serves answers too: more would hold up their next token."""
PACE = 2.0
"""Seconds that prefills get for each that answers had to themselves."""
MAX_CREDIT_S = 1.0
"""Prefills that come after a pause make up for so much of it."""


class PrefillShare:
    """Gives prefills all of an engine that answers nothing, and beside answers at most two thirds of its time."""

    def __init__(self) -> None:
        self._is_cpu = not torch.accelerator.is_available()
        self._idle_tokens = IDLE_TOKENS if self._is_cpu else IDLE_TOKENS_OF_ACCELERATOR
        self._tokens_beside = BESIDE_ANSWERS if self._is_cpu else BESIDE_ANSWERS_OF_ACCELERATOR
        self._step_began_s = time.monotonic()
        self._gave = False
        self._took_s = 0.0
        self._credit_s = MAX_CREDIT_S
        self._answered_at_s = -LIVELY_S

    def note(self, seconds: float) -> None:
        """Note the time that prefills took in a step, as its worker measured it: on an accelerator it cannot, and the
        whole step counts."""
        self._took_s += seconds

    def of_step(self, *, is_idle: bool, is_asked: bool, is_urgent: bool = False) -> int:
        """Tokens of chunks that may be prefilled in the step that begins now. is_idle: no answer waits for it;
        is_asked: there are some; is_urgent: a question waits for some."""
        now_s = time.monotonic()
        step_s, self._step_began_s = now_s - self._step_began_s, now_s
        prefills_s = self._took_s if self._is_cpu else self._gave * step_s
        self._took_s = 0.0
        self._credit_s = min(self._credit_s + PACE * (step_s - prefills_s) - prefills_s, MAX_CREDIT_S)
        self._gave = is_asked and not is_idle and (is_urgent or self._credit_s > 0)
        if not is_idle:
            self._answered_at_s = now_s
            return self._tokens_beside if self._gave else 0
        since_s = now_s - self._answered_at_s
        if is_urgent or since_s >= LIVELY_S:
            return self._idle_tokens
        return 0 if since_s < WAITING_S else self._idle_tokens // 4
