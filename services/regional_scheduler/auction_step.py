"""What a step of the auction leads to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AuctionStep:
    """What is to be done after a step of the auction."""

    moved: bool
    """True when there may be more to do at once."""
    again_in_real_s: float | None = None
    """When to look again without being woken: the deadline of a round that others have not answered."""
