"""What was released in a region since the oldest refusal that anything is still remembered of, in order."""

from __future__ import annotations

from collections.abc import Sequence

from regional_scheduler.region_releases import RegionRelease

RELEASES_REMEMBERED = 256
"""At least so many; a refusal that was not asked about for longer is forgotten: planning anew costs less by then."""


class ReleaseLog:
    """Numbered releases, the oldest of which are dropped when there are very many."""

    __slots__ = ("_first", "_releases", "number")

    def __init__(self) -> None:
        self._releases: list[RegionRelease] = []
        self._first = 0
        self.number = 0
        """Of the next release."""

    def add(self, release: RegionRelease) -> None:
        """Something was released."""
        self._releases.append(release)
        self.number += 1
        if len(self._releases) >= 2 * RELEASES_REMEMBERED:
            del self._releases[:RELEASES_REMEMBERED]
            self._first += RELEASES_REMEMBERED

    def since(self, number: int) -> Sequence[RegionRelease] | None:
        """What was released from this number on; None when that is not known any more."""
        if number < self._first:
            return None
        return self._releases[number - self._first :]

    def clear(self) -> None:
        """Nothing is remembered that could want to know of these."""
        self._first = self.number
        self._releases.clear()
