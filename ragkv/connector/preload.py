"""The imports of vLLM's core: made once, by the process that cores are forked from (`ragkv.engine.fork`)."""

import atexit
import gc

import vllm.v1.engine.core  # noqa: F401 - imported to have been imported

import ragkv.connector.connector
import ragkv.connector.worker  # noqa: F401 - see above
from ragkv.engine.fork import leave_nothing

gc.freeze()  # a collection in the core would write to objects of these modules, and so copy the pages that it shares
atexit.register(leave_nothing)
