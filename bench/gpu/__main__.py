"""`python -m bench.gpu`: `ragkv bench gpu` without the rest of ragkv, which need not be installed."""

import sys

from bench.gpu.command import gpu
from ragkv.errors import RagKVError

if __name__ == "__main__":  # processes that are spawned import this module too
    try:
        gpu(prog_name="bench/gpu.sh")
    except RagKVError as error:
        sys.exit(f"bench/gpu.sh: {error}")
