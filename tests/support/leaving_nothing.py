"""A module to preload: like ragkv.connector.preload, without vLLM."""

from ragkv.engine.fork import leave_nothing

leave_nothing()
