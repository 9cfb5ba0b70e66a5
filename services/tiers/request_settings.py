"""What a tier takes on at a time."""

from __future__ import annotations

from pydantic import Field

from formats.schema import Schema


class RequestSettings(Schema):
    """The bounds of each tier's server. What goes beyond them is refused, with the advice to try again a little later."""

    mib_at_once: int = Field(default=128, ge=40, le=1_000_000)
    """Of requests that are being answered; in memory they are some ten times as large. A client has half of it at most."""
    calls_at_once: int = Field(default=4_096, ge=16, le=1_000_000)
    """With one answer. A client has half of them at most."""
    streams_at_once: int = Field(default=8_192, ge=16, le=1_000_000)
    """Calls that are answered bit by bit, or come so: watchers, logs, uploads, shells."""
    longest_call_real_s: float = Field(default=600.0, ge=1.0, le=86_400.0)
    """A call with one answer that takes longer is ended."""

    @property
    def bytes_at_once(self) -> int:
        return self.mib_at_once * 2**20


USUAL_REQUESTS = RequestSettings()
