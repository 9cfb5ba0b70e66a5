"""Of releases that together make room, those that are needless: one after the other is taken back, to see whether room stays.

Rule: what comes last is tried first, and stays taken back unless it was needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from domain.placement import AttemptKey
from domain.placement_changes import placements_after
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.voluntary_releases import VoluntaryRelease, held_placements, release_actions

Found = TypeVar("Found")
"""What there is room for: the places of a plan."""


def without_needless(
    region: RegionCapacity, releases: Sequence[VoluntaryRelease], found: Found, find: Callable[[], Found | None]
) -> tuple[Found, list[VoluntaryRelease]]:
    """The releases without any of which nothing is found, in their order, and what is found with these; the region is as before.

    `found` is what there is with all of them; `find` looks again, and gives None or anything false when there is nothing.
    """
    supposed, needless = _SupposedReleases(region, releases), set[VoluntaryRelease]()
    with ExitStack() as taken_back:
        taken_back.enter_context(region.voluntary.released(releases))
        for candidate in reversed(releases):
            with ExitStack() as trial:
                trial.enter_context(supposed.taken_back(candidate))
                if again := find():
                    found = again
                    needless.add(candidate)
                    taken_back.push(trial.pop_all())
    return found, [release for release in releases if release not in needless]


class _SupposedReleases:
    """What attempts give up. To take one release back changes its attempt alone, however many others there are."""

    def __init__(self, region: RegionCapacity, releases: Sequence[VoluntaryRelease]) -> None:
        """Raises UnexpectedHolding. To be made while none of them is supposed."""
        self._region = region
        self._releases: dict[AttemptKey, list[VoluntaryRelease]] = {}
        """That each attempt gives up at the moment."""
        for release in releases:
            self._releases.setdefault(release.attempt, []).append(release)
        self._placements = {key: held_placements(region, key) for key in self._releases}

    @contextmanager
    def taken_back(self, release: VoluntaryRelease) -> Iterator[None]:
        """Does as if the attempt did not give this up, beside the others that it gives up; undone at exit. May be nested."""
        key = release.attempt
        before = self._releases[key]
        self._releases[key] = others = [one for one in before if one is not release]
        placements = self._placements[key]
        for action in release_actions(others):
            placements = placements_after(action, placements)
        try:
            with self._region.tentatively():
                self._region.replace_placements(key, placements)
                yield
        finally:
            self._releases[key] = before
