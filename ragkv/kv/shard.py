"""The part of a model's KV that one rank of a tensor-parallel engine holds: some heads of every layer, divided as
vLLM does."""

from dataclasses import dataclass, replace

from ragkv.errors import Unsupported
from ragkv.kv.layout import Layout


@dataclass(frozen=True, slots=True)
class Shard:
    """The heads of rank `rank` of `size`. With more ranks than KV heads each head has as many ranks as any other, which
    hold copies of it. Raises Unsupported for heads that cannot be shared out among so many."""

    whole: Layout
    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if self.whole.q_heads % self.size or (self.whole.kv_heads % self.size and self.size % self.whole.kv_heads):
            raise Unsupported(
                f"{self.whole.q_heads} query heads and {self.whole.kv_heads} KV heads cannot be divided among {self.size} ranks: "
                "set RAGKV_TENSOR_PARALLEL_SIZE to a number that divides the number of query heads and either divides "
                "the number of KV heads or is a multiple of it"
            )

    @property
    def kv_heads(self) -> slice:
        """Its KV heads, among the model's."""
        start = self.rank * self.whole.kv_heads // self.size
        return slice(start, start + max(self.whole.kv_heads // self.size, 1))

    @property
    def q_heads(self) -> range:
        """Its query heads, among the model's."""
        own = self.whole.q_heads // self.size
        return range(self.rank * own, (self.rank + 1) * own)

    @property
    def layout(self) -> Layout:
        """The shape of its part of a token's KV."""
        heads = self.kv_heads
        return replace(self.whole, q_heads=len(self.q_heads), kv_heads=heads.stop - heads.start)
