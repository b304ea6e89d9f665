"""Webhook signatures, as specified by Standard Webhooks (standardwebhooks.com)."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping

PREFIX = "whsec_"
SECRET_BYTES = 32


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signed_headers(secret: str, message_id: str, timestamp: int, body: bytes) -> Mapping[str, str]:
    """Headers of one attempt. The signature covers id, time and body: an old message cannot be sent again as a new
    one."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }
