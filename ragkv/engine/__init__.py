"""The only door to vLLM: stitching and recompute inside it, and the engines that drive it.

Nothing is imported here: the service's processes must not pay for vLLM unless they run it.
"""
