"""How commands reach Topmast."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topmast import Client

READING_ATTEMPTS = 3
"""About a second when nothing answers: people are waiting."""
CHANGING_ATTEMPTS = 4
"""About three seconds: enough for a tier that comes back, and what was meant to happen happens."""

_TIMEOUT_S = 60.0


def connect(
    address: str | None, attempts: int = READING_ATTEMPTS, patience_s: float = 60.0, timeout_s: float = _TIMEOUT_S
) -> Client:
    """A client for the address that was said, or that a client finds by itself."""
    from topmast import Client

    return Client(address, attempts=attempts, timeout_s=timeout_s, patience_s=patience_s)
