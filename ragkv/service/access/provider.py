"""The OpenID Connect provider: its discovery document and keys, its sign-in page, and the claims in its ID tokens.

The authorization code flow with PKCE, state and nonce (OpenID Connect Core 1.0, RFC 7636).
"""

import asyncio
import logging
import secrets
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

import httpx
import msgspec
from authlib.oauth2.client import OAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet
from joserfc.jws import JWSRegistry

from ragkv import __version__
from ragkv.errors import Forbidden, Unauthorised, Unavailable
from ragkv.files_io import beginning_of
from ragkv.service.access.sign_in import SignIn
from ragkv.service.base.caller import Person
from ragkv.threads import FairSlots
from ragkv.urls import is_private_transport

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
"""Signatures by the provider's private key alone: neither `none` nor those that a client secret could make."""
LEEWAY_S = 60
"""The clocks of provider and service may differ by this."""
TIMEOUT_S = 10.0
"""For all of one request to the provider."""
MAX_BYTES = 1024 * 1024
REMEMBERED_S = 3600.0
"""The discovery document is read again after this; keys, too, and at once where a token names one that is not known."""
CODES_AT_ONCE = 8
"""The provider is asked about so many codes at a time, however many strangers make up."""
FAILURE_REMEMBERED_S = 5.0
"""After a failure the discovery document is not read again for so long: anybody may ask for it."""
MAX_CHARS = 200
MAX_HEADER_BYTES = 16 * 1024
MAX_HINT_CHARS = 4000
"""A longer ID token would make too long an address for signing out: the provider asks the person instead."""
PATH = "/.well-known/openid-configuration"
_AGENT = {"user-agent": f"ragkv/{__version__}"}

T = TypeVar("T")


class Challenge(msgspec.Struct, frozen=True):
    """Secrets that tie the provider's answer to the browser that asked."""

    state: str
    nonce: str
    verifier: str

    @classmethod
    def new(cls) -> "Challenge":
        return cls(*(secrets.token_urlsafe(32) for _ in range(3)))


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity claims of a signed-in person."""

    person: Person
    groups: tuple[str, ...]
    id_token: str | None


class Discovered(msgspec.Struct, frozen=True, kw_only=True):
    """The discovery document, as far as it is used here (OpenID Connect Discovery 1.0)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    end_session_endpoint: str | None = None
    id_token_signing_alg_values_supported: tuple[str, ...] = ("RS256",)
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Tokens(msgspec.Struct, frozen=True):
    id_token: str
    access_token: str | None = None


class _Keys(msgspec.Struct, frozen=True):
    keys: tuple[dict[str, Any], ...]


class _Refusal(msgspec.Struct, frozen=True):
    error: str
    error_description: str = ""


class Provider:
    """Each method raises Unavailable where the provider does not answer, or not as it should."""

    def __init__(self, sign_in: SignIn, timeout_s: float = TIMEOUT_S) -> None:
        self._sign_in = sign_in
        self._timeout_s = timeout_s
        self._discovered: tuple[float, Discovered] | None = None
        self._failure: tuple[float, str] | None = None
        self._discovering = asyncio.Lock()
        self._keys: tuple[float, KeySet] | None = None
        self._slots = FairSlots(CODES_AT_ONCE)
        self._tls = ssl.create_default_context()

    async def sign_in_url(self, challenge: Challenge, redirect_uri: str, *, choose: bool = False) -> str:
        """URL at which a person signs in, and may choose their account though the provider recognises them. It sends
        them to `redirect_uri` then, with a code and the state."""
        discovered = await self._discover()
        url, _ = self._client(redirect_uri).create_authorization_url(
            discovered.authorization_endpoint,
            state=challenge.state,
            nonce=challenge.nonce,
            code_verifier=challenge.verifier,
            **({"prompt": "select_account"} if choose else {}),
        )
        return str(url)

    async def identify(self, code: str, challenge: Challenge, redirect_uri: str, address: str) -> Identity:
        """The person whom the provider gave this code for. Every code is tried: addresses take turns. Raises
        Unauthorised for a code or a token that is not good, Forbidden for a person whose groups cannot be known."""
        async with self._slots.taken(address):
            discovered = await self._discover()
            tokens = await self._tokens(code, challenge, redirect_uri, discovered)
            claims = await self._claims(tokens, challenge.nonce, discovered)
            groups_claim = self._sign_in.groups_claim
            groups = _found(claims, groups_claim)
            if groups is None and discovered.userinfo_endpoint is not None and tokens.access_token is not None:
                bearer = {"authorization": f"Bearer {tokens.access_token}"}
                user_info = await self._fetch("GET", discovered.userinfo_endpoint, dict[str, Any], headers=bearer)
                if user_info.get("sub") != claims["sub"]:
                    raise Unauthorised("sign-in failed: the provider's user info is for another user")
                claims = {**user_info, **claims}
                groups = _found(claims, groups_claim)
        subject = printable(claims["sub"])
        email = claims.get("email") if claims.get("email_verified") is not False else None
        names = (claims.get("name"), claims.get("preferred_username"), email)
        name = next((candidate for candidate in names if isinstance(candidate, str) and candidate.strip()), subject)
        shown_email = printable(email) if isinstance(email, str) else None
        person = Person(subject=subject, name=printable(name), email=shown_email)
        hint = tokens.id_token if len(tokens.id_token) <= MAX_HINT_CHARS else None
        return Identity(person, _names(groups, groups_claim, claims), hint)

    async def sign_out_url(self, id_token: str | None, back_to: str) -> str | None:
        """URL at which a person ends their session at the provider, which leads `back_to` then; None if it has no such
        place."""
        endpoint = (await self._discover()).end_session_endpoint
        if endpoint is None:
            return None
        query = {"client_id": self._sign_in.client_id, "post_logout_redirect_uri": back_to}
        if id_token is not None:
            query["id_token_hint"] = id_token
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def _discover(self) -> Discovered:
        """The discovery document, which one task reads for all who wait for it. A failure is theirs, too."""
        async with self._discovering:
            if self._discovered is not None and time.monotonic() < self._discovered[0]:
                return self._discovered[1]
            if self._failure is not None and time.monotonic() < self._failure[0]:
                raise Unavailable(self._failure[1])
            try:
                discovered = await self._read_discovery()
            except Unavailable as error:
                self._failure = (time.monotonic() + FAILURE_REMEMBERED_S, str(error))
                raise
            self._discovered = (time.monotonic() + REMEMBERED_S, discovered)
            return discovered

    async def _read_discovery(self) -> Discovered:
        discovered = await self._fetch("GET", self._sign_in.issuer.rstrip("/") + PATH, Discovered)
        if discovered.issuer.rstrip("/") != self._sign_in.issuer.rstrip("/"):
            raise self._unusable(
                f"its issuer is {discovered.issuer[:MAX_CHARS]!r}, which is not that of RAGKV_OIDC_ISSUER"
            )
        endpoints = (discovered.authorization_endpoint, discovered.token_endpoint, discovered.jwks_uri, discovered.userinfo_endpoint,
                     discovered.end_session_endpoint)  # fmt: skip
        for endpoint in filter(None, endpoints):
            if not is_private_transport(endpoint) or (endpoint.startswith("http:") and not self._sign_in.on_loopback):
                raise self._unusable(f"its endpoint {endpoint[:MAX_CHARS]!r} is not https")
        return discovered

    async def _tokens(self, code: str, challenge: Challenge, redirect_uri: str, discovered: Discovered) -> _Tokens:
        fields = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri,
                  "code_verifier": challenge.verifier}  # fmt: skip
        client = self._client(redirect_uri)
        form = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
        offered = discovered.token_endpoint_auth_methods_supported
        if self._sign_in.client_secret is None:
            method = "none"
        else:  # in the body, where the provider takes it: how names are encoded in a header, providers see differently
            method = "client_secret_post" if "client_secret_post" in offered else "client_secret_basic"
        url, headers, body = client.client_auth(method).prepare(
            "POST", discovered.token_endpoint, form, urlencode(fields)
        )
        return await self._fetch("POST", url, _Tokens, headers=headers, content=body)

    async def _claims(self, tokens: _Tokens, nonce: str, discovered: Discovered) -> dict[str, Any]:
        """The claims of an ID token that the provider signed, for this service, now, in answer to this nonce."""
        keys = await self._key_set(discovered)
        try:
            try:
                token = _decoded(tokens.id_token, keys, discovered)
            except (InvalidKeyIdError, BadSignatureError):  # perhaps the provider has other keys by now
                token = _decoded(tokens.id_token, await self._key_set(discovered, again=True), discovered)
            claims = CodeIDToken(
                token.claims,
                token.header,
                {
                    "iss": {"essential": True, "value": discovered.issuer},
                    "aud": {"essential": True, "value": self._sign_in.client_id},
                },
                {"nonce": nonce, "client_id": self._sign_in.client_id, "access_token": tokens.access_token},
            )
            claims.validate(leeway=LEEWAY_S)
            if not isinstance(claims["sub"], str) or not claims["sub"]:
                raise Unauthorised("sign-in failed: the provider's ID token has no subject")
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise Unauthorised(f"sign-in failed: the provider's ID token is invalid: {error}"[:MAX_CHARS]) from None
        return dict(claims)

    async def _key_set(self, discovered: Discovered, *, again: bool = False) -> KeySet:
        if not again and self._keys is not None and time.monotonic() < self._keys[0]:
            return self._keys[1]
        published = await self._fetch("GET", discovered.jwks_uri, _Keys)
        keys: list[Key] = []
        for jwk in published.keys:  # of which providers publish those of other kinds and uses, too
            if jwk.get("kty") != "oct" and jwk.get("use", "sig") == "sig":
                with suppress(JoseError, ValueError, TypeError, KeyError):
                    keys.append(JWKRegistry.import_key(jwk))
        key_set = KeySet(keys)
        self._keys = (time.monotonic() + REMEMBERED_S, key_set)
        return key_set

    def _client(self, redirect_uri: str) -> OAuth2Client:
        """Authlib's client, used for its computations: it sends nothing."""
        sign_in = self._sign_in
        return OAuth2Client(
            None, sign_in.client_id, sign_in.client_secret, scope=sign_in.scopes, redirect_uri=redirect_uri,
            code_challenge_method="S256",
        )  # fmt: skip

    async def _fetch(self, method: str, url: str, kind: type[T], **options: Any) -> T:
        """The JSON of a response. Redirects are not followed; the proxies that the process is told of are used, but not
        to reach this machine. Raises Unauthorised for a refusal by the token endpoint."""
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                httpx.AsyncClient(
                    verify=self._tls, timeout=self._timeout_s, trust_env=not self._sign_in.on_loopback, headers=_AGENT
                ) as http,
                http.stream(method, url, **options) as response,
            ):
                body = await beginning_of(response.aiter_bytes(), MAX_BYTES + 1)
                if len(body) > MAX_BYTES:
                    raise self._unusable(f"its response has more than {MAX_BYTES:,} bytes")
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            why = (
                f"no answer within {self._timeout_s:.0f} s" if isinstance(error, TimeoutError) else type(error).__name__
            )
            raise self._unusable(why) from error
        if response.status_code != httpx.codes.OK:
            if method == "POST":
                with suppress(msgspec.MsgspecError):
                    refusal = msgspec.json.decode(body, type=_Refusal)
                    raise Unauthorised(
                        f"sign-in failed: the provider refused: {printable(f'{refusal.error}: {refusal.error_description}')}"
                    )
            raise self._unusable(f"status {response.status_code} of {method} {response.url.path}")
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise self._unusable(f"{response.url.path}: {error}") from None

    def _unusable(self, why: str) -> Unavailable:
        log.error("the sign-in provider %s cannot be used: %s", self._sign_in.provider, why)
        return Unavailable(
            f"the sign-in provider {self._sign_in.provider} cannot be used now ({printable(why)}): try again later, or "
            "log in with an API key"
        )


def _decoded(id_token: str, keys: KeySet, discovered: Discovered) -> jwt.Token:
    offered = discovered.id_token_signing_alg_values_supported
    registry = JWSRegistry(algorithms=[name for name in ALGORITHMS if name in offered], strict_check_header=False)
    registry.max_header_length = MAX_HEADER_BYTES
    return jwt.decode(id_token, keys, registry=registry)


def _found(claims: Mapping[str, Any], name: str) -> object:
    """The claim of this name, or of this path (`realm_access.roles`); None if there is none."""
    if name in claims:
        return claims[name]
    claim: object = claims
    for part in name.split("."):
        claim = claim.get(part) if isinstance(claim, Mapping) else None
    return claim


def _names(groups: object, claim: str, claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of groups, from a list or one text. Raises Forbidden where they cannot be trusted or were left out."""
    if claim == "email" and claims.get("email_verified") is not True:
        raise Forbidden(
            "the provider has not verified your e-mail address, which decides your access here: verify it with the "
            "provider, then sign in again"
        )
    if groups is None and claim in (claims.get("_claim_names") or ()):
        raise Forbidden(
            f"you are in more groups than the claim {claim} can hold: ask the administrator to map application roles "
            "instead (docs/OPERATIONS.md)"
        )
    listed: Sequence[object] = groups if isinstance(groups, list) else [groups]
    return tuple(group for group in listed if isinstance(group, str))


def printable(text: str) -> str:
    """Text of the provider's for pages and logs."""
    return "".join(character if character.isprintable() else " " for character in text[:MAX_CHARS]).strip(" :")
