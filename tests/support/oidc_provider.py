"""An OpenID Connect provider in a process of its own: oidc-provider-mock, made to check PKCE and, when told, to
misbehave.

`misbehave` changes how it answers until the next: `PUT /faults` with a JSON object of claims (of ID tokens, over the
right ones; null removes), alg, wrong_key, kid, discovery (over the right document), status (of all but that), slow_s,
thin (groups in the user info alone), other_subject (there), rotate (to a new key, now).
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

CLIENT_ID = "ragkv"
CLIENT_SECRET = "s3cret"


class OIDCProvider:
    """The provider, and the people who are known to it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def add(self, subject: str, *groups: str, **claims: Any) -> None:
        """A person, or other claims for one."""
        told = {"email": f"{subject}@example.com", "name": subject.title(), "groups": list(groups)} | claims
        httpx.put(f"{self.url}/users/{subject}", json=told).raise_for_status()

    def misbehave(self, **faults: Any) -> None:
        httpx.put(f"{self.url}/faults", json=faults).raise_for_status()

    def authorise(self, location: str, subject: str) -> str:
        """Sign in at the address that the service led to; returns the address that the provider leads back to."""
        response = httpx.post(location, data={"sub": subject})
        assert response.status_code == 302, response.text
        return response.headers["location"]


@contextmanager
def running(port: int) -> Iterator[OIDCProvider]:
    from tests.support.over_http import wait_until  # which imports what the process itself does not need

    provider = OIDCProvider(f"http://127.0.0.1:{port}")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.oidc_process", str(port)], stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: process.poll() is not None or _answers(provider))
        yield provider
    finally:
        process.kill()
        process.wait()


def _answers(provider: OIDCProvider) -> bool:
    try:
        return httpx.get(f"{provider.url}/jwks").status_code == 200
    except httpx.HTTPError:
        return False
