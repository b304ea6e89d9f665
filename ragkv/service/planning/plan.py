"""The plan for a model, a corpus and its questions, by simple arithmetic: which tier wins in which format, and when it
pays off.

Loading a stored token beats computing it if `bandwidth * (1 - recomputed share) > bytes per token * prefill rate`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ragkv.errors import Rejected
from ragkv.kv.format import KVFormat, share_of
from ragkv.service.planning.shape import Shape
from ragkv.text import plural

CHUNK_TOKENS = 256
WORTH_IT = 2.0
"""Times sooner that loading has to be before a format is recommended: selecting and de-quantising take their part."""
DAYS_A_MONTH = 30
SCALING = {1: 1.0, 2: 0.92, 4: 0.85, 8: 0.75}
"""Share of its own rate that each device keeps under tensor parallelism, by the number of devices."""
_GIGA = 1e9


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """The hardware that computes. tflops: dense bfloat16 of one device at its peak; utilisation: the share of it that a
    prefill reaches; price: dollars an hour for one. rate: tokens a second as measured, instead of what follows from
    these."""

    tflops: float = 989.0
    utilisation: float = 0.5
    count: int = 1
    price: float = 2.5
    rate: float | None = None


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """Storage that may hold KV. bandwidth: GB a second that an engine reads; price: dollars for a GB a month."""

    name: str
    bandwidth: float
    price: float


MEMORY, DISK, NETWORK = "memory", "disk", "network"
TIERS = (
    Tier(name=MEMORY, bandwidth=50.0, price=2.0),
    Tier(name=DISK, bandwidth=7.0, price=0.1),
    Tier(name=NETWORK, bandwidth=3.0, price=0.1),
    Tier(name="object store", bandwidth=0.1, price=0.023),
)
"""Usual figures: PCIe 5, one NVMe drive, 25 GbE, one connection; prices of 2026 for rent."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The load that is planned for: documents, their mean tokens, questions a day, tokens of context for each, and the
    share recomputed at a question."""

    documents: int = 10_000
    tokens: int = 2_000
    questions_per_day: float = 1_000.0
    context: int = 8192
    recomputed: float = 0.1

    def __post_init__(self) -> None:
        if min(self.documents, self.tokens, self.context) < 1 or not 0 <= self.questions_per_day < math.inf:
            raise Rejected("documents, tokens and context must be 1 or more, questions a day 0 or more")
        if not 0 <= self.recomputed < 1:
            raise Rejected("the recomputed share must be at least 0 and below 1")


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One format in one tier.

    needed_bandwidth: GB a second from which loading beats computing. load_s, total_s: seconds to load a question's
    context, and with what is recomputed. sooner: full prefill's time over that. break_even_reads: reads of a token a
    month from which storing it is cheaper than computing it. storage_price: dollars a month for the corpus' files.
    """

    tier: str
    format: KVFormat
    bandwidth: float
    needed_bandwidth: float
    load_s: float
    total_s: float
    sooner: float
    break_even_reads: float
    storage_price: float
    wins: bool
    pays: bool


class CostPlan(msgspec.Struct, frozen=True, kw_only=True):
    """bytes_per_token: of keys and values, by format. storage_gb: of the corpus' files, which have each chunk's Q-Cache
    too. prefill_rate: tokens a second; prefill_s: of a question's context. reads: of a stored token a month, in the
    mean. million_price: dollars to compute a million tokens. settings: what to set, and advice: in words."""

    model: str
    bytes_per_token: dict[KVFormat, float]
    corpus_tokens: int
    storage_gb: dict[KVFormat, float]
    context: int
    prefill_rate: float
    prefill_s: float
    million_price: float
    reads: float
    options: tuple[Option, ...]
    settings: dict[str, str]
    advice: tuple[str, ...]


def prefill_rate(shape: Shape, device: Device, context: int) -> float:
    """Tokens a second."""
    if device.rate is not None:
        return device.rate
    if device.count not in SCALING:
        raise Rejected(f"{device.count} devices: choose from {', '.join(map(str, SCALING))}")
    reached = device.tflops * 1e12 * device.utilisation * device.count * SCALING[device.count]
    return reached / shape.flops_per_token(context)


def check_rates(rates: Iterable[float]) -> None:
    """Check rates and bandwidths. Raises Rejected unless each is a number above 0."""
    if not all(0 < rate < math.inf for rate in rates):  # not a number (NaN) is neither
        raise Rejected("rates and bandwidths must be above 0")


def plan(shape: Shape, load: Load, device: Device, tiers: Sequence[Tier] = TIERS) -> CostPlan:
    """Storage, time and cost of stored KV for a load on a device. Raises Rejected for figures that cannot be."""
    check_rates((device.tflops, 1.0 if device.rate is None else device.rate, *(tier.bandwidth for tier in tiers)))
    if not 0 < device.utilisation <= 1:
        raise Rejected("the utilisation must be above 0 and at most 1")
    if not all(0 <= price < math.inf for price in (device.price, *(tier.price for tier in tiers))):
        raise Rejected("prices must be 0 or more")
    rate = prefill_rate(shape, device, load.context)
    corpus = load.documents * load.tokens
    sizes = {
        kv_format: shape.bytes_per_token * share_of(kv_format, shape.head_dim, CHUNK_TOKENS) for kv_format in KVFormat
    }
    files = {
        kv_format: corpus * (size + shape.qcache_bytes(CHUNK_TOKENS, kv_format) / CHUNK_TOKENS) / _GIGA
        for kv_format, size in sizes.items()
    }
    million_price = 1e6 / rate * device.count * device.price / 3600
    reads = load.questions_per_day * DAYS_A_MONTH * load.context / corpus
    options = tuple(
        _option(tier, kv_format, size, files[kv_format], load, rate, million_price / 1e6, reads)
        for tier in tiers
        for kv_format, size in sizes.items()
    )
    settings, advice = _recommended(options, tiers, reads)
    if device.rate is None:
        gpus = f"{plural(device.count, 'GPU')} of {device.tflops:g} TFLOPS"
        advice = (
            *advice,
            f"prefill is assumed to run on {gpus} (an H100 has 989): for this machine, ragkv plan --measure",
        )
    return CostPlan(
        model=shape.name,
        bytes_per_token=sizes,
        corpus_tokens=corpus,
        storage_gb=files,
        context=load.context,
        prefill_rate=rate,
        prefill_s=load.context / rate,
        million_price=million_price,
        reads=reads,
        options=options,
        settings=settings,
        advice=advice,
    )


def _option(
    tier: Tier,
    kv_format: KVFormat,
    size: float,
    files_gb: float,
    load: Load,
    rate: float,
    token_price: float,
    reads: float,
) -> Option:
    needed = size * rate / (1 - load.recomputed) / _GIGA
    load_s = size * load.context / tier.bandwidth / _GIGA
    total_s = load_s + load.recomputed * load.context / rate
    stored_price = size / _GIGA * tier.price  # of a token, a month
    break_even = stored_price / token_price if token_price else float("inf")
    return Option(
        tier=tier.name,
        format=kv_format,
        bandwidth=tier.bandwidth,
        needed_bandwidth=needed,
        load_s=load_s,
        total_s=total_s,
        sooner=load.context / rate / total_s,
        break_even_reads=break_even,
        storage_price=files_gb * tier.price,
        wins=tier.bandwidth > needed,
        pays=reads >= break_even,
    )


def _recommended(
    options: Sequence[Option], tiers: Sequence[Tier], reads: float
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The format for each tier: the first whose loading is well ahead, or else the smallest if that is ahead at all."""
    by_tier: dict[str, Option | None] = {}
    for tier in tiers:
        here = [option for option in options if option.tier == tier.name]
        ahead = [option for option in here if option.wins]
        by_tier[tier.name] = next(
            (candidate for candidate in ahead if candidate.sooner >= WORTH_IT), ahead[-1] if ahead else None
        )
    advice = tuple(_words(name, option, reads) for name, option in by_tier.items())
    disk = next((option for name, option in by_tier.items() if option and name == DISK), None)
    best = disk or next((option for option in by_tier.values() if option), None)
    return ({"RAGKV_KV_FORMAT": best.format} if best else {}), advice


def _words(tier: str, option: Option | None, reads: float) -> str:
    if option is None:
        return f"{tier}: computing is faster than loading in every format; keep KV elsewhere, or load it before a question needs it"
    pays = (
        "and renting it pays off"
        if option.pays
        else (
            f"renting it pays off from {option.break_even_reads:,.0f} reads of a token a month, {reads:,.1f} are expected: "
            "use storage that you have anyway, or keep only the KV of hot documents"
        )
    )
    return f"{tier}: {option.format} is {option.sooner:.1f} times faster than full prefill; {pays}"


def by_name(tiers: Sequence[Tier], bandwidths: Mapping[str, float], prices: Mapping[str, float]) -> tuple[Tier, ...]:
    """The tiers with other figures for those named, by any part of the name. Raises Rejected for a name of none."""
    changed = list(tiers)
    for figures, field in ((bandwidths, "bandwidth"), (prices, "price")):
        for name, value in figures.items():
            matching = [index for index, tier in enumerate(changed) if name.lower() in tier.name.lower()]
            if len(matching) != 1:
                raise Rejected(f"{name}: name one of {', '.join(tier.name for tier in tiers)}, or a part of it")
            changed[matching[0]] = msgspec.structs.replace(changed[matching[0]], **{field: value})
    return tuple(changed)
