"""GPU code in vLLM's libraries, without that of chips that the measured one is not: a third of its size, packed.

A library's section `.nv_fatbin` is a row of containers, each with the code of some functions for several chips, as
machine code (cubin) or assembler (PTX). Each container is rewritten in its place, as if it had been compiled for one
chip; the file keeps its size, and the zeros that are left pack to nothing. The layout is that which NVIDIA's cuobjdump
reads: it lists the same cubins before and after.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

HOPPER = 90
_MAGIC = 0xBA55ED50
_CONTAINER = struct.Struct("<IHHQ")
"""Magic number, version, bytes of this header, bytes of the content."""
_ENTRY = struct.Struct("<HHIQ")
"""Kind, version, bytes of this header, bytes of the code. The chip follows at byte 28."""
_CHIP = struct.Struct("<28xI")
_PTX, _CUBIN = 1, 2
_ELF_SECTIONS = struct.Struct("<40xQ12xHH")
"""Offset of an ELF file's section headers, how many there are, and which one has their names."""
_ELF_SECTION = struct.Struct("<I20xQQ24x")
"""Where a section's name begins, its offset and its bytes; behind it unused fields."""


@dataclass(frozen=True, slots=True)
class _Code:
    """One entry of a container, whole."""

    kind: int
    chip: int
    entry: bytes


def pruned(library: bytes) -> bytes:
    """The library with code for Hopper alone: its cubins, or PTX that can be compiled for it where there are none.

    A container that has neither keeps its smallest entry: nothing of it can be launched, but it loads. Raises
    ValueError for a file without GPU code.
    """
    out = bytearray(library)
    offset, number, names = _ELF_SECTIONS.unpack_from(library)
    sections = [_ELF_SECTION.unpack_from(library, offset + _ELF_SECTION.size * index) for index in range(number)]
    gpu_code = [
        (start, start + size)
        for name, start, size in sections
        if library.startswith(b".nv_fatbin\0", sections[names][1] + name)
    ]
    if not gpu_code:
        raise ValueError("no GPU code in this library")
    at, end = gpu_code[0]
    while at <= end - _CONTAINER.size:
        magic, _, header, content = _CONTAINER.unpack_from(out, at)
        if magic != _MAGIC:
            at += 8  # containers are aligned
            continue
        start, stop = at + header, at + header + content
        entries = list(_entries(library, start, stop))
        cubins = [code.entry for code in entries if code.kind == _CUBIN and code.chip == HOPPER]
        assembler = [code.entry for code in entries if code.kind == _PTX and code.chip <= HOPPER]
        left = b"".join(cubins or assembler or [min((code.entry for code in entries), key=len)])
        struct.pack_into("<Q", out, at + 8, len(left))
        out[start:stop] = left.ljust(content, b"\0")
        at = stop
    return bytes(out)


def _entries(library: bytes, start: int, stop: int) -> Iterator[_Code]:
    while start < stop:
        kind, _, header, num_bytes = _ENTRY.unpack_from(library, start)
        (chip,) = _CHIP.unpack_from(library, start)
        yield _Code(kind, chip, library[start : start + header + num_bytes])
        start += header + num_bytes
