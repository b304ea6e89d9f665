"""The service's side of vLLM: how prompts, plans and reports travel to it and back, and how it is started and watched.

Nothing is imported here: the service's processes must not pay for vLLM unless they run it.
"""
