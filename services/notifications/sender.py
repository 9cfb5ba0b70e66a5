"""Sends one notification: an HTTP POST to an address that may be told, answered in time. Nothing is followed, little is read."""

from __future__ import annotations

import asyncio
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_address
from socket import AddressFamily
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from services.notifications.send_failed import SendFailed
from services.notifications.signing import DELIVERY_HEADER, SIGNATURE_HEADER
from services.notifications.target_rules import TargetRules

_MOST_READ_BYTES = 4_096
_NAMES_AT_ONCE = 16
"""So many names are resolved at a time."""


class HttpSender:
    """Sends as long as its context lasts. It keeps no connection, uses no proxy, and sends no cookies."""

    def __init__(self, rules: TargetRules, timeout_real_s: float) -> None:
        self._rules = rules
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=_RuledResolver(rules), use_dns_cache=False, force_close=True, limit=0
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=timeout_real_s),
            headers={"User-Agent": "topmast", "Content-Type": "application/json"},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def send(self, url: str, body: bytes, delivery: str, signed: str) -> None:
        """Returns when it was answered well (2xx); raises SendFailed."""
        self._require_allowed(url)
        headers = {DELIVERY_HEADER: delivery, SIGNATURE_HEADER: signed}
        try:
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                await answer.content.read(_MOST_READ_BYTES)
                status = answer.status
        except TimeoutError as error:
            raise SendFailed("did not answer in time") from error
        except aiohttp.ClientConnectorCertificateError as error:
            raise SendFailed("its certificate is not valid") from error
        except (aiohttp.ClientConnectorError, ssl.SSLError, OSError) as error:
            raise SendFailed(_words(error)) from error
        except (aiohttp.ClientError, ValueError) as error:
            raise SendFailed(f"is no HTTP that can be understood ({type(error).__name__})") from error
        if 300 <= status < 400:
            raise SendFailed(f"answered {status}; redirects are not followed")
        if not 200 <= status < 300:
            raise SendFailed(f"answered {status}")

    def _require_allowed(self, url: str) -> None:
        """An address needs no resolver, and is one also in digits of other scripts once the URL has been read to be sent."""
        host = urlsplit(url).hostname or ""
        if not host.isascii():
            raise SendFailed("its host has letters beyond ASCII, which this service does not tell", for_good=True)
        try:
            ip_address(host)
        except ValueError:
            return
        refusal = self._rules.refusal(host)
        if refusal is not None:
            raise SendFailed(refusal, for_good=True)


class _RuledResolver(AbstractResolver):
    """Gives only addresses that may be told; what is connected to is what was looked at.

    In threads of its own: names are of the users' choice, one whose server never answers keeps its thread for as long as the system
    waits, and those of the event loop have other work.
    """

    def __init__(self, rules: TargetRules) -> None:
        self._rules = rules
        self._threads = ThreadPoolExecutor(_NAMES_AT_ONCE, thread_name_prefix="notified-names")

    async def resolve(
        self, host: str, port: int = 0, family: AddressFamily = AddressFamily.AF_INET
    ) -> list[ResolveResult]:
        look_up = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        found = [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=of_family,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for of_family, _, protocol, _, address in await asyncio.get_running_loop().run_in_executor(
                self._threads, look_up
            )
        ]
        refusals = [self._rules.refusal(one["host"]) for one in found]
        allowed = [one for one, refusal in zip(found, refusals, strict=True) if refusal is None]
        if not allowed:
            # The name may stand for something else tomorrow: it is tried again.
            raise SendFailed(next((refusal for refusal in refusals if refusal), "its name stands for no address"))
        return allowed

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _words(error: BaseException) -> str:
    """Why no connection came about."""
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(inner, ConnectionRefusedError):
        return "refused the connection"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    text = inner.strerror if isinstance(inner, OSError) else None
    return text.lower() if text else f"cannot be reached ({type(inner).__name__})"
