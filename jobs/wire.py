"""Read-only questions to a server of this box. One fresh connection each; no proxy, no retry."""

import json
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx

_LARGEST = 8 << 20


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: the status and the body, or why there is none (then status is 0)."""

    status: int
    text: str
    why: str = ""

    @property
    def ok(self) -> bool:
        """Whether the server answered 200."""
        return self.status == 200

    def json(self) -> Any:
        """The body as JSON; None when it is none."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    def said(self) -> str:
        """In one short line what came back, for a person."""
        return self.why or f"{self.status} {' '.join(self.text.split())[:200]}".strip()


@contextmanager
def client(api_key: str | None, within_s: float) -> Iterator[httpx.Client]:
    """A client for one request: fresh connection, no proxy of the environment, no redirects."""
    headers = {"Connection": "close"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    timeout = httpx.Timeout(within_s, connect=min(5.0, within_s))
    with httpx.Client(
        headers=headers, timeout=timeout, verify=_certificates(), trust_env=False
    ) as opened:
        yield opened


@cache
def _certificates() -> ssl.SSLContext:
    """Read once: a client that reads them anew takes 15 ms, of a time in which production is down."""
    return httpx.create_ssl_context(trust_env=False)


def why(error: Exception) -> str:
    """An HTTP failure in words, without addresses or keys."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def get(base_url: str, path: str, *, api_key: str | None, within_s: float) -> Reply:
    """GET one page; never raises for what a server can do."""
    return _ask("GET", base_url + path, None, api_key=api_key, within_s=within_s)


def post(
    base_url: str, path: str, body: Mapping[str, Any], *, api_key: str | None, within_s: float
) -> Reply:
    """POST one JSON body; never raises for what a server can do."""
    return _ask("POST", base_url + path, body, api_key=api_key, within_s=within_s)


def _ask(
    method: str,
    url: str,
    body: Mapping[str, Any] | None,
    *,
    api_key: str | None,
    within_s: float,
) -> Reply:
    if within_s <= 0:
        return Reply(0, "", "no time left to ask")
    ends = time.monotonic() + within_s
    try:
        with (
            client(api_key, within_s) as opened,
            opened.stream(method, url, json=body) as response,
        ):
            text = bytearray()
            for chunk in response.iter_bytes():
                text += chunk
                if time.monotonic() > ends:
                    return Reply(0, "", f"no whole answer within {round(within_s, 1):g} s")
                if len(text) > _LARGEST:
                    return Reply(0, "", f"the answer is larger than {_LARGEST >> 20} MiB")
            return Reply(response.status_code, text.decode("utf-8", "replace"))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Reply(0, "", why(error))
