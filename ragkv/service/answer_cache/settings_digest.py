"""A digest of the settings that answers depend on: all except a list of those that cannot matter."""

import hashlib

import msgspec

from ragkv.settings import Settings

WITHOUT_INFLUENCE = frozenset({
    # The bytes of models have separate fingerprints.
    "model", "model_revision", "encoder", "encoder_revision",
    # Where things are, and how to get at them.
    "data_dir", "database_url", "redis_url", "engine_api_key", "qdrant_api_key", "host", "port", "public_url", "webhook_hosts",
    "kv_remote_endpoint", "kv_remote_region", "kv_remote_access_key", "kv_remote_secret_key",
    "oidc_issuer", "oidc_client_id", "oidc_client_secret", "oidc_scopes", "oidc_groups_claim", "oidc_groups", "oidc_session_s",
    "oidc_key_days",
    # What is admitted, how much is kept and for how long.
    "max_upload_bytes", "max_tenant_bytes", "max_tenant_documents", "max_tenant_kv_bytes", "max_kv_bytes", "max_remote_kv_bytes", "host_kv_bytes",
    "min_free_bytes", "audit_retention_days",
    "eviction", "eviction_half_life_s",
    "data_sources_allowed", "data_sources_endpoint", "data_sources_region", "data_sources_access_key", "data_sources_secret_key",
    "max_answer_bytes", "max_tenant_answer_bytes", "requests_per_minute", "tenant_requests_per_minute",
    "refusals_per_minute", "max_streams", "max_questions", "max_uploads", "max_connections", "question_retention_days",
    "kv_cache_gib", "engine_silence_s", "shutdown_grace_s", "parse_seconds", "parse_memory_mib", "max_document_characters",
    "max_document_tokens",
    "read_hidden", "ocr", "ocr_pages", "ocr_seconds",
    "log_format", "log_level", "otlp_endpoint",
})  # fmt: skip


def settings_digest(settings: Settings) -> str:
    """Differs wherever a setting differs that may change an answer. A new setting counts until it is listed above."""
    counted = {
        name: str(value) for name, value in msgspec.structs.asdict(settings).items() if name not in WITHOUT_INFLUENCE
    }
    return hashlib.sha256(msgspec.json.encode(counted, order="sorted")).hexdigest()
