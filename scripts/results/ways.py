"""A way to schedule, as the documents that compare several name it: a policy, and settings beside its own."""

from __future__ import annotations

from dataclasses import dataclass

AS_PUBLISHED = ("eviction.victims=published",)
"""Victims as the paper chooses them (§4.3)."""
COMPACTION = ("compaction.enabled=true",)
BETWEEN_REGIONS = ("compaction.between_regions=true",)
RESERVATIONS = ("reservations.enabled=true",)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to schedule."""

    policy: str
    settings: tuple[str, ...] = ()
    """As `topmast simulate --set` takes them."""
