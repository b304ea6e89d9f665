"""A module to preload: like ragkv.connector.preload, without vLLM."""

import atexit

from ragkv.engine.fork import leave_nothing

atexit.register(leave_nothing)
