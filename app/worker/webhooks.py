"""Calls webhooks over HTTP, within the rules of `egress`."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ssl import SSLContext
from typing import Any, Final, Protocol

import httpcore
import httpx

from app.worker.egress import EgressRules, RefusedReceiverError

RESOLVERS: Final = 32
"""Threads that ask for names; a slow name server takes one of them for as long as it is slow."""
MAX_ANSWER: Final = 16 * 1024
"""Bytes read of an answer, so that its connection can be used again; a longer one ends it."""
KEEP_ALIVE: Final = 5.0
"""Seconds that an unused connection stays open. A name is asked for again with the next."""
MAX_IDLE: Final = 100

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host. Raises `OSError` if it has none."""


class WebhookFailedError(Exception):
    """A delivery did not reach its receiver; the message says why, without URL or credentials."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receiver said."""

    status: int
    retry_after: float | None = None
    """Seconds that it asked to be left alone for."""


class Webhooks(Protocol):
    """Something that can call webhooks."""

    def origin(self, url: str) -> str:
        """Names the receiver at a URL. Raises `WebhookFailedError` if it may not be called."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Call a webhook and return what it said, following no redirect.

        Raises:
            WebhookFailedError: it was not reached, did not answer in time, or may not be called.
        """


class HttpWebhooks:
    """HTTP/1.1 with connections that are kept for a short while; proxies of the environment are not used."""

    def __init__(self, rules: EgressRules, *, timeout: float, resolve: Resolve, tls: SSLContext | None = None) -> None:
        """`timeout`: seconds from the look-up of the name to the end of the answer."""
        self._rules = rules
        self._timeout = timeout
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls or httpx.create_ssl_context(),
            max_connections=None,
            max_keepalive_connections=MAX_IDLE,
            keepalive_expiry=KEEP_ALIVE,
            network_backend=_CheckedNetwork(rules, resolve),
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    def origin(self, url: str) -> str:
        """Scheme, host and port."""
        try:
            return self._rules.target(url).origin
        except RefusedReceiverError as error:
            raise WebhookFailedError(f"the URL {error}") from None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Call a webhook; `Content-Length` is set, and `Host` is the URL's."""
        try:
            target = self._rules.target(url)
            sent = [("Host", target.netloc), ("Accept", "*/*"), *headers.items(), ("Content-Length", str(len(body)))]
            place = httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
            async with (
                asyncio.timeout(self._timeout),
                self._pool.stream("POST", place, headers=sent, content=body) as response,
            ):
                size = 0
                async for chunk in response.aiter_stream():
                    size += len(chunk)
                    if size > MAX_ANSWER:
                        break
                return Answer(response.status, _retry_after(response.headers))
        except RefusedReceiverError as error:
            raise WebhookFailedError(f"the URL {error}") from None
        except TimeoutError:
            raise WebhookFailedError("it did not answer in time") from None
        except _FAULTS as error:
            raise WebhookFailedError(str(error) or type(error).__name__) from error


_FAULTS: Final = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError)


class _CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to addresses that were checked, whatever a name resolves to a moment later."""

    def __init__(self, rules: EgressRules, resolve: Resolve) -> None:
        self._rules = rules
        self._resolve = resolve
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first of the host's addresses that takes the connection, if all may be called."""
        failure: Exception | None = None
        for address in self._rules.checked(host, await self._resolve(host, port)):
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        assert failure is not None  # noqa: S101 - there was an address
        raise failure


@asynccontextmanager
async def http_webhooks(
    rules: EgressRules, *, timeout: float, resolve: Resolve | None = None, tls: SSLContext | None = None
) -> AsyncIterator[HttpWebhooks]:
    """Webhooks as long as the context lasts; names are the system's to resolve, on threads of their own."""
    threads = ThreadPoolExecutor(RESOLVERS, "resolver")
    webhooks = HttpWebhooks(rules, timeout=timeout, resolve=resolve or _system_resolver(threads), tls=tls)
    try:
        yield webhooks
    finally:
        await webhooks.aclose()
        threads.shutdown(wait=False, cancel_futures=True)


def _system_resolver(threads: ThreadPoolExecutor) -> Resolve:
    def look_up(host: str, port: int) -> list[str]:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(place[0]) for *_, place in found))

    async def resolve(host: str, port: int) -> Sequence[str]:
        return await asyncio.get_running_loop().run_in_executor(threads, look_up, host, port)

    return resolve


def _retry_after(headers: Iterable[tuple[bytes, bytes]]) -> float | None:
    """What `Retry-After` asks for: a number of seconds, or a date (RFC 9110, 10.2.3)."""
    text = next((value.decode("latin-1").strip() for name, value in headers if name.lower() == b"retry-after"), "")
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())
