"""Quantised KV: as near as its step, whatever part is read, and as small as it says."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.utils._python_dispatch import TorchDispatchMode

from ragkv.errors import Corrupt, Unsupported
from ragkv.kv.file import PackedKV, PlainKV, read_kv, read_qcache, read_shape, write_kv
from ragkv.kv.format import GRIDS, KVFormat, share_of
from ragkv.kv.layout import Layout
from ragkv.kv.quantise import Packed, pack_keys, pack_values
from ragkv.kv.store import KVStore
from tests.support.made_kv import loaded

LAYOUT = Layout(layers=12, q_heads=9, kv_heads=3, head_dim=64, dtype=torch.bfloat16)
QUANTISED = [KVFormat.INT8, KVFormat.INT4]
LENGTHS = (1, 2, 3, 5, 64, 65, 128, 129, 300)
"""Tokens of a chunk: below, at and above a group's."""
KEY, OTHER = "ab" * 32, "cd" * 32


def some_kv(tokens: int = 150) -> PlainKV:
    """Keys with channels of very different size and centre, as models have them."""
    torch.manual_seed(tokens)
    shape, q_layers = (LAYOUT.layers, tokens, LAYOUT.kv_heads, LAYOUT.head_dim), len(LAYOUT.q_layers)
    sizes, centres = torch.logspace(-2, 1, LAYOUT.head_dim), torch.linspace(-3, 3, LAYOUT.head_dim)
    return PlainKV(
        keys=(torch.randn(shape) * sizes + centres * sizes).bfloat16(),
        values=torch.randn(shape).bfloat16(),
        initial=torch.randn(q_layers, LAYOUT.q_heads, LAYOUT.head_dim),
        local=torch.randn(q_layers, LAYOUT.q_heads, LAYOUT.head_dim),
        mean_keys=torch.randn(-(-tokens // 16), q_layers, LAYOUT.kv_heads, LAYOUT.head_dim),
    )


def unpacked(
    packed: Packed, layers: slice = slice(0, LAYOUT.layers), start: int = 0, end: int | None = None
) -> torch.Tensor:
    tokens = (packed.num_tokens if end is None else end) - start
    out = torch.empty(layers.stop - layers.start, tokens, LAYOUT.kv_heads, LAYOUT.head_dim, dtype=torch.bfloat16)
    packed.unpack_into(out, layers, start)
    return out


def both_read(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    kv = read_kv(path, LAYOUT)
    keys, values = (
        torch.empty(LAYOUT.layers, kv.num_tokens, LAYOUT.kv_heads, LAYOUT.head_dim).bfloat16() for _ in "kv"
    )
    kv.copy_into(keys, values, slice(0, LAYOUT.layers), 0)
    return keys, values


@pytest.mark.parametrize("kv_format", QUANTISED)
class TestError:
    def test_keys_are_as_near_as_half_a_step_of_their_channels_group(
        self, kv_format: KVFormat, subtests: pytest.Subtests
    ):
        for tokens in LENGTHS:
            with subtests.test(tokens=tokens):
                grid, keys = GRIDS[kv_format], some_kv(tokens).keys
                groups = keys.float().split(-(-tokens // -(-tokens // grid.tokens)), 1)
                spread = [g.abs().amax(1) if grid.centred else g.amax(1) - g.amin(1) for g in groups]
                steps = (
                    torch.cat([s[:, None].expand_as(g) for s, g in zip(spread, groups, strict=True)], 1) / grid.highest
                )

                error = (unpacked(pack_keys(keys, grid)).float() - keys.float()).abs()

                assert (
                    error <= 0.51 * steps + (steps * grid.highest + keys.float().abs()) / 128
                ).all()  # bfloat16 rounds, too

    def test_values_are_as_near_as_half_a_step_of_their_token(self, kv_format: KVFormat, subtests: pytest.Subtests):
        for tokens in LENGTHS:
            with subtests.test(tokens=tokens):
                grid, values = GRIDS[kv_format], some_kv(tokens).values
                whole = values.float()
                spread = (
                    whole.abs().amax(3, keepdim=True)
                    if grid.centred
                    else whole.amax(3, keepdim=True) - whole.amin(3, keepdim=True)
                )

                error = (unpacked(pack_values(values, grid)).float() - whole).abs()

                assert (error <= 0.51 * spread / grid.highest + spread / 64).all()

    def test_edges_stay_as_they_are(self, kv_format: KVFormat, subtests: pytest.Subtests):
        for tokens in LENGTHS:
            with subtests.test(tokens=tokens):
                grid, keys = GRIDS[kv_format], some_kv(tokens).keys
                read, kept = unpacked(pack_keys(keys, grid)), min(grid.edges, tokens // 2)

                assert torch.equal(read[:, :kept], keys[:, :kept])
                assert torch.equal(read[:, tokens - kept :], keys[:, tokens - kept :])


@pytest.mark.parametrize("kv_format", QUANTISED)
class TestReading:
    def test_a_part_is_that_part_of_the_whole(self, kv_format: KVFormat, subtests: pytest.Subtests):
        for start, end in [(0, 150), (1, 149), (0, 10), (70, 80), (74, 76), (140, 150), (149, 150)]:
            with subtests.test(start=start, end=end):
                kv, grid = some_kv(), GRIDS[kv_format]
                for packed in (pack_keys(kv.keys, grid), pack_values(kv.values, grid)):
                    part = unpacked(packed, slice(2, 4), start, end)

                    assert torch.equal(part, unpacked(packed)[2:4, start:end])

    def test_what_is_all_the_same_stays_so(self, kv_format: KVFormat, subtests: pytest.Subtests):
        for value in [0.0, 3.0, -100.0]:
            with subtests.test(value=value):
                same = torch.full((LAYOUT.layers, 5, LAYOUT.kv_heads, LAYOUT.head_dim), value).bfloat16()

                for packed in (pack_keys(same, GRIDS[kv_format]), pack_values(same, GRIDS[kv_format])):
                    torch.testing.assert_close(unpacked(packed), same, rtol=0.01, atol=0)


@pytest.mark.parametrize("kv_format", QUANTISED)
class TestFile:
    @pytest.mark.parametrize("tokens", [110, 256])
    def test_its_size(self, kv_format: KVFormat, tokens: int, tmp_path: Path):
        plain = write_kv(tmp_path / "plain.safetensors", some_kv(tokens))

        size = write_kv(tmp_path / "x.safetensors", some_kv(tokens), kv_format)

        assert size < plain * {KVFormat.INT8: 0.53, KVFormat.INT4: 0.32}[kv_format]
        kv = 2 * some_kv(tokens).keys.nbytes
        assert size == pytest.approx(
            kv * share_of(kv_format, LAYOUT.head_dim, tokens), rel=0.1
        )  # the Q-Cache comes on top

    def test_it_comes_back_with_its_qcache(self, kv_format: KVFormat, tmp_path: Path):
        path, kv = tmp_path / "x.safetensors", some_kv()
        write_kv(path, kv, kv_format)

        keys, values = both_read(path)

        torch.testing.assert_close(keys.float(), kv.keys.float(), atol=10, rtol=0.1)
        assert torch.corrcoef(torch.stack([values.flatten(), kv.values.flatten()]).float())[0, 1] > 0.99
        assert isinstance(read_kv(path, LAYOUT), PackedKV)
        for name in ("initial", "local", "mean_keys"):
            read = getattr(read_qcache(path), name)
            assert read.dtype == torch.float32
            torch.testing.assert_close(read, getattr(kv, name), rtol=0.01, atol=0.01)

    def test_its_shape_names_the_format(self, kv_format: KVFormat, tmp_path: Path):
        path = tmp_path / "x.safetensors"
        write_kv(path, some_kv(), kv_format)

        shape = read_shape(path)

        assert (shape.layers, shape.tokens, shape.kv_heads, shape.head_dim) == (12, 150, 3, 64)
        assert (shape.format, shape.dtype, shape.q_blocks) == (kv_format, "BF16", 10)
        with safe_open(path, framework="pt") as file:
            stored = sum(file.get_tensor(name).nbytes for name in ("initial", "local", "mean_keys"))
        assert shape.q_bytes == stored

    def test_one_flipped_bit_or_a_lost_end_is_corrupt(self, kv_format: KVFormat, tmp_path: Path):
        path = tmp_path / "x.safetensors"
        write_kv(path, some_kv(20), kv_format)
        whole = path.read_bytes()
        for at in range(0, len(whole), len(whole) // 60):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises((Corrupt, Unsupported)):
                both_read(path)
            path.write_bytes(whole[:at])
            with pytest.raises(Corrupt):
                both_read(path)

    def test_another_models_is_refused(self, kv_format: KVFormat, tmp_path: Path):
        path = tmp_path / "x.safetensors"
        write_kv(path, some_kv(), kv_format)

        for other in ({"layers": 5}, {"kv_heads": 2}, {"head_dim": 32}, {"dtype": torch.float16}):
            fields = {name: getattr(LAYOUT, name) for name in LAYOUT.__slots__} | other
            with pytest.raises(Unsupported, match="does not fit the served model"):
                read_kv(path, Layout(**fields))

    def test_it_is_made_from_a_plain_one_alone(self, kv_format: KVFormat, tmp_path: Path):
        store = KVStore(tmp_path)
        assert not store.convert(KEY, OTHER, kv_format)
        store.put(KEY, some_kv())

        assert store.convert(KEY, OTHER, kv_format)
        assert store.shape(OTHER).format is kv_format
        assert not store.convert(OTHER, "ef" * 32, kv_format)


@pytest.mark.parametrize("kv_format", KVFormat)
def test_of_latent_attention_keys_alone_are_kept(kv_format: KVFormat, tmp_path: Path):
    """The same as beside values."""
    alone, beside = (tmp_path / f"{name}.safetensors" for name in (KEY, OTHER))
    kv = some_kv()
    write_kv(alone, replace(kv, values=kv.values[..., :0]), kv_format)
    write_kv(beside, kv, kv_format)

    stored = read_kv(alone, replace(LAYOUT, is_latent=True))
    keys = torch.empty(kv.keys.shape).bfloat16()
    stored.copy_into(keys, torch.empty(*keys.shape[:3], 0).bfloat16(), slice(0, LAYOUT.layers), 0)

    assert torch.equal(keys, both_read(beside)[0])
    assert loaded(stored).values.shape == (*keys.shape[:3], 0)
    with pytest.raises(Unsupported, match="values are"):
        read_kv(alone, LAYOUT)


def test_a_format_of_the_future_is_left_alone(tmp_path: Path):
    path = tmp_path / f"{KEY}.safetensors"
    write_kv(path, some_kv())
    with safe_open(path, framework="pt") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118 - it is no dict
    save_file(tensors, path, metadata | {"format": "int2"})

    with pytest.raises(Unsupported, match="newer version"):
        read_kv(path, LAYOUT)


class OneDevice(TorchDispatchMode):
    """Refuses, as a GPU does, to compute with tensors of two devices. Copies alone go from one to another."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):  # type: ignore[no-untyped-def] # PyTorch's protocol
        if op not in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default):
            assert len({each.device for each in args if isinstance(each, torch.Tensor)}) <= 1, op
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("kv_format", KVFormat)
def test_it_is_unpacked_on_the_device_that_it_is_written_to(kv_format: KVFormat, tmp_path: Path):
    path = tmp_path / "x.safetensors"
    write_kv(path, some_kv(), kv_format)
    opened = read_kv(path, LAYOUT)
    some = slice(1, 3)
    opened_of_some, loaded_of_some = (kv.of_heads(some) for kv in (opened, loaded(opened)))
    for kv, heads in (
        (opened, LAYOUT.kv_heads),
        (loaded(opened), LAYOUT.kv_heads),
        (opened_of_some, 2),
        (loaded_of_some, 2),
    ):
        keys, values = (torch.empty(4, 150, heads, LAYOUT.head_dim, device="meta").bfloat16() for _ in "kv")

        with OneDevice():
            kv.copy_into(keys, values, slice(2, 6), 0)


@pytest.mark.parametrize("kv_format", QUANTISED)
def test_it_is_packed_on_the_device_where_it_lies(kv_format: KVFormat):
    kv = some_kv()

    with OneDevice():
        packed = [
            pack(part.to("meta"), GRIDS[kv_format]) for pack, part in ((pack_keys, kv.keys), (pack_values, kv.values))
        ]

    assert {each.codes.device.type for each in packed} == {"meta"}
