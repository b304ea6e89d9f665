"""oidc-provider-mock as a process: `python -m tests.support.oidc_process PORT`. It checks PKCE and the client's secret,
and misbehaves as `PUT /faults` says (`tests.support.oidc_provider`)."""

import base64
import hashlib
import json
import sys
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import flask
import oidc_provider_mock
from authlib import jose

from tests.support.oidc_provider import CLIENT_SECRET

FAULTS: dict[str, Any] = {}
CHALLENGES: dict[str, str] = {}
"""PKCE challenges by the code that was given for them."""
APP = oidc_provider_mock.app(require_nonce=True)


@APP.put("/faults")
def misbehave() -> Any:
    FAULTS.clear()
    FAULTS.update(flask.request.get_json())
    if FAULTS.get("rotate"):
        flask.g.oidc_provider_mock_storage.jwk = jose.RSAKey.generate_key(is_private=True)
    return "", 204


@APP.before_request
def refuse() -> Any:
    path = flask.request.path
    if path.startswith(("/faults", "/users")):
        return None
    time.sleep(FAULTS.get("slow_s", 0))
    if (status := FAULTS.get("status")) and not path.startswith("/.well-known"):
        return "no", status
    return refused_token() if path == "/oauth2/token" else None


def refused_token() -> Any:
    verifier = flask.request.form.get("code_verifier", "")
    if CHALLENGES.pop(flask.request.form.get("code", ""), None) != encoded(hashlib.sha256(verifier.encode()).digest()):
        return {"error": "invalid_grant", "error_description": "PKCE"}, 400
    basic = flask.request.authorization
    return None if basic is not None and basic.password == CLIENT_SECRET else ({"error": "invalid_client"}, 401)


@APP.after_request
def spoil(response: Any) -> Any:
    path, sent = flask.request.path, flask.request.args
    if path == "/oauth2/authorize" and response.status_code == 302 and sent.get("code_challenge_method") == "S256":
        (code,) = parse_qs(urlsplit(response.headers["location"]).query)["code"]
        CHALLENGES[code] = sent["code_challenge"]
    elif path == "/oauth2/token" and response.status_code == 200:
        answer = response.get_json()
        response.set_data(json.dumps(answer | {"id_token": spoilt(answer["id_token"])}))
    elif path == "/userinfo" and FAULTS.get("other_subject"):
        response.set_data(json.dumps(response.get_json() | {"sub": "somebody else"}))
    elif path.startswith("/.well-known") and "discovery" in FAULTS:
        response.set_data(json.dumps(without_nulls(response.get_json() | FAULTS["discovery"])))
    return response


def spoilt(id_token: str) -> str:
    claims = json.loads(base64.urlsafe_b64decode(id_token.split(".")[1] + "=="))
    if FAULTS.get("thin"):
        claims.pop("groups", None)
    return signed(without_nulls(claims | FAULTS.get("claims", {})))


def signed(claims: dict[str, Any]) -> str:
    right = flask.g.oidc_provider_mock_storage.jwk
    alg = FAULTS.get("alg", "RS256")
    body = json.dumps(claims).encode()
    if alg == "none":
        return f"{encoded(json.dumps({'alg': alg}).encode())}.{encoded(body)}."
    jws = jose.JsonWebSignature(algorithms=[alg])
    if alg.startswith("HS"):
        return jws.serialize_compact({"alg": alg}, body, CLIENT_SECRET).decode()
    key = jose.RSAKey.generate_key(is_private=True) if FAULTS.get("wrong_key") else right
    return jws.serialize_compact({"alg": alg, "kid": FAULTS.get("kid", right.thumbprint())}, body, key).decode()


def encoded(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in value.items() if one is not None}


if __name__ == "__main__":
    APP.run(port=int(sys.argv[1]), threaded=True, use_reloader=False)
