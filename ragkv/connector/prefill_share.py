"""vLLM's scheduler: the share of the engine's steps that prefills of chunks may take."""

import time

import torch

IDLE_TOKENS, IDLE_TOKENS_OF_ACCELERATOR = 1024, 4096
"""Tokens of chunks that run in a step that serves nothing else: some tenths of a second. A question that arrives
meanwhile waits for its end."""
BESIDE_ANSWERS, BESIDE_ANSWERS_OF_ACCELERATOR = 256, 1024
"""Tokens of chunks that run in a step that serves answers too: more would hold up their next token."""


class PrefillShare:
    """Gives prefills all of an engine that answers nothing, and at most half of its time beside answers: after a step
    that prefilled, answers have as much time for themselves."""

    def __init__(self) -> None:
        is_cpu = not torch.accelerator.is_available()
        self._idle_tokens = IDLE_TOKENS if is_cpu else IDLE_TOKENS_OF_ACCELERATOR
        self._tokens_beside = BESIDE_ANSWERS if is_cpu else BESIDE_ANSWERS_OF_ACCELERATOR
        self._step_began_s = time.monotonic()
        self._gave = False
        self._owed_s = 0.0

    def of_step(self, *, is_idle: bool) -> int:
        """Tokens of chunks that may be prefilled in the step that begins now. is_idle: no answer waits for it."""
        now_s = time.monotonic()
        took_s, self._step_began_s = now_s - self._step_began_s, now_s
        self._owed_s = took_s if self._gave else self._owed_s - took_s
        self._gave = not is_idle and self._owed_s <= 0
        if is_idle:
            self._owed_s = 0.0
            return self._idle_tokens
        return self._tokens_beside if self._gave else 0
