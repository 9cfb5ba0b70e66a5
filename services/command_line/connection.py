"""How commands reach Topmast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.command_line.output import note

if TYPE_CHECKING:
    from topmast import AsyncClient, Client

READING_ATTEMPTS = 3
"""About a second when nothing answers: people are waiting."""
CHANGING_ATTEMPTS = 4
"""About three seconds: enough for a tier that comes back, and what was meant to happen happens."""

_TIMEOUT_S = 60.0


def connect(
    address: str | None, attempts: int = READING_ATTEMPTS, patience_s: float = 60.0, timeout_s: float = _TIMEOUT_S
) -> Client:
    """A client for the address that was said, or that a client finds by itself; says so where that is a guess.

    Raises UnreachableError where the home that counts has no service.
    """
    from topmast import Client

    _say_where_guessed(address)
    return Client(address, attempts=_attempts(address, attempts), timeout_s=timeout_s, patience_s=patience_s)


def connect_on_loop(address: str | None) -> AsyncClient:
    """The same for what runs on an event loop."""
    from topmast import AsyncClient

    _say_where_guessed(address)
    return AsyncClient(address, attempts=_attempts(address, READING_ATTEMPTS), timeout_s=_TIMEOUT_S)


def _attempts(address: str | None, attempts: int) -> int:
    """As many as there can be where another server is about to take over."""
    from topmast.address import resolve_address
    from topmast.channel import MAX_ATTEMPTS
    from topmast.targets import addresses_of

    return MAX_ATTEMPTS if len(addresses_of(resolve_address(address))) > 1 else attempts


def _say_where_guessed(address: str | None) -> None:
    from topmast.address import DEFAULT_ADDRESS, is_guessed, topmast_home

    if is_guessed(address):
        note(f"no Topmast is up from {topmast_home()}; asking the one at {DEFAULT_ADDRESS}")
