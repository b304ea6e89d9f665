"""One frozen object holds every setting; nothing else reads the environment."""

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from ragkv.errors import Rejected
from ragkv.kv.eviction import HALF_LIFE_S, known_policy
from ragkv.kv.format import KVFormat
from ragkv.kv.rule import LEAST, MOST, CompressionMethod, KVRule, KVWhen, KVWrite
from ragkv.observe import LogFormat, LogLevel
from ragkv.stitch.policies import ALIASES, BLOCK_SIZES, UPPER, Choice, PolicyName
from ragkv.urls import is_loopback

PREFIX = "RAGKV_"
SETTINGS_FILE = "RAGKV_SETTINGS"
CLIENT_KEY = "RAGKV_API_KEY"
"""The variable from which clients of a service take their API key; no setting."""
MIN_RETENTION_DAYS = 7
"""The statistics show a week."""
MIN_CHUNK_TOKENS = 32
QUESTION_PLACE = "{question}"
REMOVED = {
    "kv_remote_faults": "faults of the object store are injected by tests alone",
    "kv_wait_token_ms": "RAGKV_KV_WAIT_MS also sets the wait for each token",
    "prefill_batch_tokens": "the engine makes its own batches of chunks",
    "sink_aware": "attention to the prefix always counts when layers select what is recomputed",
}
"""Former settings, each with the reason."""
PORTS = range(65536)
"""0: any that is free."""
HTTP = ("http://", "https://")
SCHEMES = {
    "redis_url": ("redis://", "rediss://", "unix://"),
    "qdrant_url": HTTP,
    "engine_url": HTTP,
    "ingest_engine_url": HTTP,
    "public_url": HTTP,
}
"""Beginnings of addresses of servers."""
LEAST_READ = 0.01
"""Share of the passages' tokens that a sparse prompt holds at least."""
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
"""As browsers write it: a page's address up to the host and port, without the port that its scheme implies."""
_IMPLIED = re.compile(r"http://.*:80|https://.*:443")
_TEXT = "a text"
_WANTED = {
    msgspec.inspect.IntType: "a whole number",
    msgspec.inspect.FloatType: "a number",
    msgspec.inspect.BoolType: "true or false",
    msgspec.inspect.NoneType: "",
}

Positive = Annotated[int, msgspec.Meta(gt=0)]
PositiveFloat = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
NotNegativeFloat = Annotated[float, msgspec.Meta(ge=0)]
Mode = Literal["stitched", "full"]
PassageOrder = Literal["best_last", "best_first"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every default works on one machine with no services. Names in the environment are RAGKV_ + upper case."""

    data_dir: Path = Path(".ragkv")

    model: str = "embedded"
    model_revision: str | None = None
    encoder: str = "embedded"
    encoder_revision: str | None = None
    reranker: str | None = None
    reranker_revision: str | None = None
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"

    engine_url: str | None = None
    ingest_engine_url: str | None = None
    engine_api_key: str | None = None
    engine_silence_s: PositiveFloat = 300.0
    max_model_len: Positive = 8192
    max_batched_tokens: Positive = 8192
    kv_cache_gib: PositiveFloat | None = None
    enforce_eager: bool | None = None
    tensor_parallel_size: Positive = 1
    speculative_tokens: NotNegative = 0

    database_url: str | None = None
    redis_url: str | None = None
    qdrant_url: str | None = None
    qdrant_api_key: str | None = None

    kv_remote: str | None = None
    kv_remote_endpoint: str | None = None
    kv_remote_region: str | None = None
    kv_remote_access_key: str | None = None
    kv_remote_secret_key: str | None = None
    kv_write: KVWrite = KVWrite.THROUGH
    kv_wait_ms: NotNegativeFloat = 500.0

    host: str = "127.0.0.1"
    port: int = 8000
    public_url: str | None = None
    cors_origins: str = ""
    oidc_issuer: str | None = None
    oidc_client_id: str | None = None
    oidc_client_secret: str | None = None
    oidc_scopes: str = "openid profile email"
    oidc_groups_claim: str = "groups"
    oidc_groups: str | None = None
    oidc_session_s: int = 3600
    oidc_key_days: int = 90
    max_upload_bytes: Positive = 64 * 1024 * 1024
    max_tenant_bytes: NotNegative = 0
    max_tenant_documents: NotNegative = 0
    max_tenant_kv_bytes: NotNegative = 0
    max_kv_bytes: NotNegative | None = None
    host_kv_bytes: NotNegative | None = None
    max_remote_kv_bytes: NotNegative = 0
    min_free_bytes: NotNegative | None = None
    max_answer_bytes: Positive = 128 * 1024 * 1024
    max_tenant_answer_bytes: Positive = 32 * 1024 * 1024
    requests_per_minute: NotNegative = 600
    tenant_requests_per_minute: NotNegative = 1800
    refusals_per_minute: NotNegative = 60
    max_streams: NotNegative = 20
    max_questions: NotNegative = 16
    max_uploads: NotNegative = 16
    max_connections: NotNegative = 1000
    shutdown_grace_s: NotNegativeFloat = 60.0
    question_retention_days: int = 90
    webhook_hosts: str = ""
    audit_retention_days: NotNegative = 365

    data_sources_allowed: str = ""
    data_sources_endpoint: str | None = None
    data_sources_region: str | None = None
    data_sources_access_key: str | None = None
    data_sources_secret_key: str | None = None

    parse_seconds: Positive = 60
    parse_memory_mib: Positive = 2048
    max_document_characters: Positive = 10_000_000
    max_document_tokens: Positive = 3_000_000
    read_hidden: bool = False
    ocr: bool = True
    ocr_pages: Positive = 200
    ocr_seconds: Positive = 1200

    log_format: LogFormat = "auto"
    log_level: LogLevel = "info"
    otlp_endpoint: str | None = None

    instructions: str = (
        "Answer the question with the passages below. Give the shortest answer that is complete: a name, a date, "
        "a number or one sentence."
    )
    question_format: str = "Answer this question in a few words, from the passages above: {question}"
    answer_start: str = "Answer:"
    chunk_tokens: int = 256
    kv_format: KVFormat = KVFormat.BF16
    kv_compress: CompressionMethod = CompressionMethod.NONE
    kv_keep: float = 0.5
    kv_when: KVWhen = KVWhen.UPLOAD
    kv_uses: Positive = 2
    eviction: str = "cost"
    eviction_half_life_s: PositiveFloat = HALF_LIFE_S
    top_k: Positive = 16
    hops: Positive = 2
    answer_outdated: bool = True
    passage_order: PassageOrder = "best_last"
    max_answer_tokens: Positive = 128

    recompute_policy: PolicyName = "question"
    recompute_ratio: float | None = None
    recompute_max_tokens: NotNegative = 320
    block_size: int | None = None
    sparse_ratio: float = 1.0
    choosing_layers: str = UPPER

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.data_dir / 'ragkv.sqlite3'}"

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the address the service listens on."""
        return is_loopback(self.host)

    @property
    def trusted_webhook_hosts(self) -> frozenset[str]:
        """Hosts that webhooks may reach by plain HTTP and at private addresses."""
        return frozenset(filter(None, (host.strip().lower() for host in self.webhook_hosts.split(","))))

    @property
    def allowed_origins(self) -> frozenset[str]:
        """Origins whose pages may call the API from a browser; `*` for all."""
        return frozenset(filter(None, (origin.strip() for origin in self.cors_origins.split(","))))

    @property
    def redis_socket(self) -> Path:
        return self.data_dir.absolute() / "redis.sock"

    @property
    def engine_socket(self) -> Path:
        """Socket at which the service's own engine listens to its workers."""
        return self.data_dir.absolute() / "engine.sock"

    @property
    def kv_rule(self) -> KVRule:
        """The rule of collections that have none of their own."""
        return KVRule(
            self.kv_format, self.kv_when, self.kv_uses, self.kv_write, self.kv_compress, round(self.kv_keep, 2)
        )

    @property
    def kv_dir(self) -> Path:
        return self.data_dir / "kv"

    @property
    def files_dir(self) -> Path:
        return self.data_dir / "files"

    @property
    def writer_dir(self) -> Path:
        """Folder of the adapter of the writer in use, if there is one."""
        return self.data_dir / "writer"

    @property
    def writers_dir(self) -> Path:
        """Folder of the adapters that the dashboard offers, each in a subfolder."""
        return self.data_dir / "writers"

    @property
    def models_dir(self) -> Path:
        return self.data_dir / "models"

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> "Settings":
        """Settings from RAGKV_* names, over those of the TOML file that RAGKV_SETTINGS names, if it does.

        The client variable RAGKV_API_KEY is ignored. Raises Rejected for an unknown name, naming the nearest known one,
        and for a value of the wrong type.
        """
        values: dict[str, Any] = {}
        if path := environ.get(SETTINGS_FILE):
            values |= _read_toml(Path(path))
        for name, value in environ.items():
            if name.startswith(PREFIX) and name not in (SETTINGS_FILE, CLIENT_KEY):
                values[_known(name, shown=name)] = value
        return cls.of(values)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Settings":
        """Settings from names and loosely typed values ("8192" for 8192). A policy may have its alias."""
        named = dict(given)
        if isinstance(policy := named.get("recompute_policy"), str):
            named["recompute_policy"] = ALIASES.get(policy, policy)
        try:
            settings = msgspec.convert(named, cls, strict=False, dec_hook=_convert)
        except msgspec.ValidationError as error:
            raise Rejected(_complaint(error, named)) from None
        _check_ranges(settings)
        return settings


def _complaint(error: msgspec.ValidationError, given: Mapping[str, Any]) -> str:
    """Message that names the wrong setting and the values it takes: msgspec names only the field, at the end of its
    message."""
    name = str(error).rpartition(" - at `$.")[2].rstrip("`")
    field = next((field for field in msgspec.inspect.type_info(Settings).fields if field.name == name), None)  # type: ignore[attr-defined]
    if field is None:
        return f"settings: {error}"
    kinds = field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
    expected = " or ".join(filter(None, map(_described, kinds)))
    shown = "" if expected == _TEXT else f"={given[name]}"  # passwords are texts
    return f"{PREFIX}{name.upper()}{shown}: give {expected}"


def _described(kind: msgspec.inspect.Type) -> str:
    """Description of the values that a setting of this type takes; nothing for None, which no variable can say."""
    match kind:
        case msgspec.inspect.LiteralType(values):
            return f"one of {', '.join(map(str, values))}"
        case msgspec.inspect.EnumType(cls):
            return f"one of {', '.join(cls)}"
        case msgspec.inspect.IntType(gt=0) | msgspec.inspect.FloatType(gt=0):
            return f"{_WANTED[type(kind)]} above 0"
        case msgspec.inspect.IntType(ge=0) | msgspec.inspect.FloatType(ge=0):
            return f"{_WANTED[type(kind)]}, 0 or more"
    return _WANTED.get(type(kind), _TEXT)


def _convert(kind: type[Any], value: Any) -> Any:
    """Paths, which msgspec does not know."""
    if kind is not Path:
        raise NotImplementedError
    if not isinstance(value, str | Path):
        raise ValueError("Expected a path")  # noqa: TRY004 - msgspec turns this one into its own error
    return Path(value)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise Rejected(f"{SETTINGS_FILE}: cannot read {path}: {error}") from None
    values: dict[str, Any] = {}
    for name, value in table.items():
        field = _known(name, shown=f"{name} in {path}")
        if field in values:
            raise Rejected(f"{path} has {PREFIX}{field.upper()} twice, under two spellings: keep one")
        values[field] = value
    return values


def _known(given: str, shown: str) -> str:
    """The setting's field, for its name with or without RAGKV_, in any case. Raises Rejected naming the nearest
    setting."""
    fields = Settings.__struct_fields__
    name = given.lower().removeprefix(PREFIX.lower())
    if name in fields:
        return name
    if name in REMOVED:
        raise Rejected(f"{shown} was removed: {REMOVED[name]}. Unset it")
    near = difflib.get_close_matches(name, fields, n=1, cutoff=0.0)[0]
    raise Rejected(f"unknown setting {shown}: did you mean {PREFIX}{near.upper()}?")


def _check_ranges(settings: Settings) -> None:
    shares = {"recompute_ratio": (0, 1), "sparse_ratio": (LEAST_READ, 1), "kv_keep": (LEAST, MOST)}
    for name, (low, high) in shares.items():
        share = getattr(settings, name)
        if share is not None and not low <= share <= high:
            raise Rejected(f"{PREFIX}{name.upper()} must be between {low} and {high}")
    if settings.reranker == "qcache":
        raise Rejected(
            f"{PREFIX}RERANKER=qcache was removed: behind two hops it lowered recall@5 by 0.8 to 4.5 points. Unset it, or "
            "set a sentence-transformers CrossEncoder"
        )
    if settings.chunk_tokens < MIN_CHUNK_TOKENS:
        raise Rejected(f"{PREFIX}CHUNK_TOKENS must be at least {MIN_CHUNK_TOKENS}")
    if settings.chunk_tokens >= settings.max_model_len:
        raise Rejected(
            f"{PREFIX}CHUNK_TOKENS={settings.chunk_tokens} leaves no room in a prompt: set it well below "
            f"{PREFIX}MAX_MODEL_LEN ({settings.max_model_len}), which holds instructions, passages, question and answer"
        )
    if settings.block_size is not None and settings.block_size not in BLOCK_SIZES:
        raise Rejected(f"{PREFIX}BLOCK_SIZE must be between {BLOCK_SIZES[0]} and {BLOCK_SIZES[-1]}")
    _check_addresses(settings)
    Choice.of(settings.choosing_layers or UPPER)
    known_policy(settings.eviction)
    if settings.question_format.count(QUESTION_PLACE) != 1:
        raise Rejected(f"{PREFIX}QUESTION_FORMAT must contain {QUESTION_PLACE} exactly once, where the question goes")
    if settings.question_retention_days != 0 and settings.question_retention_days < MIN_RETENTION_DAYS:
        raise Rejected(
            f"{PREFIX}QUESTION_RETENTION_DAYS must be 0, to keep questions for ever, or at least {MIN_RETENTION_DAYS}"
        )


def _check_addresses(settings: Settings) -> None:
    for origin in settings.allowed_origins:
        if not _ORIGIN.fullmatch(origin) or _IMPLIED.fullmatch(origin):
            raise Rejected(
                f"{PREFIX}CORS_ORIGINS: {origin[:80]!r} is not an origin as browsers send it: give scheme, host and, "
                "unless the scheme implies it, port, in lower case and without a path, like https://chat.example.com or "
                "http://localhost:3000; several are separated by commas, and * is every site"
            )
    if settings.port not in PORTS:
        raise Rejected(f"{PREFIX}PORT must be between {PORTS[0]} and {PORTS[-1]}")
    for name, schemes in SCHEMES.items():
        url = getattr(settings, name)
        if url is None:
            continue
        if name == "qdrant_url" and "://" not in url:  # its client adds http://
            url = f"//{url}"
        elif not url.startswith(schemes):
            raise Rejected(f"{PREFIX}{name.upper()} must begin with one of {', '.join(schemes)}")
        try:
            urlsplit(url).port  # noqa: B018 - read to be checked
        except ValueError:  # its message would show a password
            raise Rejected(
                f"{PREFIX}{name.upper()}: the host or port cannot be read; give the port as a number, and percent-encode "
                "special characters of a password"
            ) from None
    if urlsplit(settings.public_url or "").path.strip("/"):
        raise Rejected(
            f"{PREFIX}PUBLIC_URL must be an origin, like https://rag.example.com, without a path: the dashboard needs a "
            "host of its own"
        )
