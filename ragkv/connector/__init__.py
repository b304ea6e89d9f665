"""All that runs inside vLLM: the KV connector, and stitching and recompute in place.

The first line of each module says in which of vLLM's processes it runs. Nothing is imported here.
"""
