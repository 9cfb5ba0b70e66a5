"""What running attempts can do without: capacity that counts as available before anybody is evicted (design §4).

Rule: flexible tasks of elastic jobs go first (Lyra §4, §5), whatever the standings: no base task waits for a flexible one.
An attempt that is leaving, or whose last change is not carried out yet, gives up nothing. Other things that attempts can
do without come from further sources, in the order in which they are given up.

Invariant: a base task is never released, so the gang stays (I2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import ref

import numpy as np

from cluster_manager.capacity.charging import ENTRY_COLUMNS, MACHINE
from cluster_manager.capacity.errors import UnexpectedHolding
from cluster_manager.capacity.released_capacity import tasks_gained
from cluster_manager.capacity.tables import GPUS, MEBIBYTES, MILLICPUS, Integers
from cluster_manager.capacity.task_kinds import TaskKind
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.placement_changes import name_of, placements_after
from domain.plan import Retune, ScaleIn, TaskAmounts

if TYPE_CHECKING:
    from regional_scheduler.region_capacity import RegionCapacity


class VoluntaryRelease(NamedTuple):
    """A task of a running attempt that can go, or can hold less CPU and memory."""

    attempt: AttemptKey
    before: TaskPlacement
    after: TaskPlacement | None
    """None: it goes."""

    @property
    def amounts(self) -> tuple[int, int, int]:
        """GPUs, thousandths of a CPU and MiB that become free on its machine."""
        before, after = self.before, self.after
        if after is None:
            return len(before.gpu_indices), before.millicpus, before.mebibytes
        return 0, before.millicpus - after.millicpus, before.mebibytes - after.mebibytes


class ReleaseSource(Protocol):
    """One kind of thing that attempts can do without."""

    def releases_of(self, holding: Holding) -> Iterable[VoluntaryRelease]:
        """What an attempt that holds this can do without: each may be released without the others."""
        ...


class FlexibleTasks:
    """The flexible tasks of elastic jobs: what was added last goes first."""

    def releases_of(self, holding: Holding) -> Iterable[VoluntaryRelease]:
        if not holding.base_tasks:
            return ()
        return [VoluntaryRelease(holding.key, placement, None) for placement in reversed(holding.flexible)]


FLEXIBLE_TASKS = FlexibleTasks()


class VoluntaryReleases:
    """What the attempts of one region can do without at the moment."""

    __slots__ = (
        "_changing",
        "_found",
        "_found_at",
        "_has_other_sources",
        "_held",
        "_region_reference",
        "_shared",
        "_sources",
        "changes_take_time",
        "possible",
    )

    def __init__(self, region: RegionCapacity) -> None:
        # The region has this: were it kept from here, only a search for cycles could free it.
        self._region_reference = ref(region)
        self._shared = region.shared
        self._sources: tuple[ReleaseSource, ...] = (FLEXIBLE_TASKS,)
        self._has_other_sources = False
        self._held: list[dict[AttemptKey, tuple[VoluntaryRelease, ...]]] = [{}]
        self._changing: set[AttemptKey] = set()
        self._found: tuple[VoluntaryRelease, ...] = ()
        self._found_at = -1
        self.possible = False
        """Whether any attempt may have something that it can do without; False is sure. Read only."""
        self.changes_take_time = False
        """Whether whoever changes what an attempt holds says later that it is carried out: see `change_carried_out`."""

    def add_source(self, source: ReleaseSource) -> None:
        """Attempts can do without this too, when those before it are not enough. To be called while nothing is held."""
        self._sources = (*self._sources, source)
        self._has_other_sources = True
        self._held.append({})

    # What happens.

    def holds(self, key: AttemptKey, holding: Holding | None) -> None:
        """The attempt holds this from now on; None: it is gone."""
        if holding is not None:
            if not (self.possible or holding.base_tasks or self._has_other_sources):
                return
            for source, held in zip(self._sources, self._held, strict=True):
                releases = tuple(source.releases_of(holding))
                if releases:
                    held[key] = releases
                    self.possible = True
                elif self.possible:
                    held.pop(key, None)
            return
        if self.possible:
            for held in self._held:
                held.pop(key, None)
            self.possible = any(self._held)
        if key in self._changing:
            self._changing.discard(key)
            self._shared.undo_log.note(partial(self._changing.add, key))

    def go_on_from(self, before: VoluntaryReleases) -> None:
        """The region's capacity takes the place of another one: what attempts can do without is found in the same way, and
        those that are changing still are. To be called while nothing is held."""
        self.changes_take_time = before.changes_take_time
        for source in before._sources[len(self._sources) :]:
            self.add_source(source)
        self._changing.update(before._changing)

    def is_changing(self, key: AttemptKey) -> bool:
        """Whether the attempt's last change is not carried out yet, where that takes time."""
        return key in self._changing

    def begins_change(self, key: AttemptKey) -> None:
        """What the attempt holds was changed: where that takes time, it gives up nothing meanwhile."""
        if not self.changes_take_time or key in self._changing:
            return
        self._changing.add(key)
        self._shared.undo_log.note(partial(self._changing.discard, key))

    def will_begin(self, key: AttemptKey) -> None:
        """The attempt is about to be dispatched: it gives up nothing before it runs, as `change_carried_out` says then."""
        self._changing.add(key)

    def will_give_up(self, key: AttemptKey) -> bool:
        """Whether it can do without anything as soon as it runs, or its last change is carried out."""
        return key in self._changing and any(key in held for held in self._held)

    def change_carried_out(self, key: AttemptKey) -> bool:
        """The attempt's last change is carried out; whether it can do without anything again."""
        if key not in self._changing:
            return False
        self._changing.discard(key)
        self._found_at = -1
        return any(key in held for held in self._held)

    # What there is.

    @property
    def _region(self) -> RegionCapacity:
        """Raises ReferenceError: the region is gone."""
        region = self._region_reference()
        if region is None:
            raise ReferenceError("the capacity of the region whose releases are asked for is gone")
        return region

    def all(self) -> tuple[VoluntaryRelease, ...]:
        """Everything, in the order of the sources, then of the attempts."""
        if not self.possible:
            return ()
        if self._found_at != self._shared.revision:
            region = self._region
            self._found = tuple(
                [
                    release
                    for held in self._held
                    for key in sorted(held)
                    if key not in self._changing and not region.is_leaving(key)
                    for release in held[key]
                ]
            )
            self._found_at = self._shared.revision
        return self._found

    def counts_with(self, counts: Integers, kind: TaskKind) -> Integers:
        """[cluster] for how many tasks there is capacity when everything is released, where it is `counts` without."""
        releases = self.all()
        if not releases:
            return counts
        counts, region = counts.copy(), self._region
        for position, entries in _entries_of(region, releases):
            arrays = region.clusters[position].arrays
            counts[position] += tasks_gained(arrays, kind.needs, entries)
        return counts

    @contextmanager
    def released(self, releases: Sequence[VoluntaryRelease]) -> Iterator[None]:
        """Does as if these were released; undone at exit."""
        region = self._region
        with region.tentatively():
            for action in release_actions(releases):
                held = held_placements(region, action.attempt)
                region.replace_placements(action.attempt, placements_after(action, held))
            yield


def held_placements(region: RegionCapacity, key: AttemptKey) -> tuple[TaskPlacement, ...]:
    """What an attempt holds of which there are releases. Raises UnexpectedHolding."""
    holding = region.holding(key)
    if holding is None:
        raise UnexpectedHolding(key, "holds nothing here")
    return holding.placements


def release_actions(releases: Iterable[VoluntaryRelease]) -> tuple[ScaleIn | Retune, ...]:
    """The actions that these come to, sorted by attempt: it scales in before it is tuned."""
    by_attempt: dict[AttemptKey, list[VoluntaryRelease]] = {}
    for release in _each_task_once(releases):
        by_attempt.setdefault(release.attempt, []).append(release)
    actions: list[ScaleIn | Retune] = []
    for key in sorted(by_attempt):
        gone = sorted(name_of(release.before) for release in by_attempt[key] if release.after is None)
        if gone:
            actions.append(ScaleIn(key, tuple(gone)))
        less = sorted(
            TaskAmounts(name_of(release.after), release.after.millicpus, release.after.mebibytes)
            for release in by_attempt[key]
            if release.after is not None
        )
        if less:
            actions.append(Retune(key, tuple(less)))
    return tuple(actions)


def _each_task_once(releases: Iterable[VoluntaryRelease]) -> list[VoluntaryRelease]:
    """Without what tasks could hold less that go as a whole: a flexible task may be tuned as well."""
    given = list(releases)
    gone = {(release.attempt, name_of(release.before)) for release in given if release.after is None}
    return [
        release for release in given if release.after is None or (release.attempt, name_of(release.before)) not in gone
    ]


def _entries_of(region: RegionCapacity, releases: Sequence[VoluntaryRelease]) -> list[tuple[int, Integers]]:
    """What they release, summed up per machine and put together per cluster, by its position, as in `AttemptArrays`."""
    sums: dict[int, dict[int, list[int]]] = {}
    for release in _each_task_once(releases):
        position, number = region.place_of(release.before.machine)
        amounts = sums.setdefault(position, {}).setdefault(number, [0] * ENTRY_COLUMNS)
        gpus, millicpus, mebibytes = release.amounts
        amounts[GPUS] += gpus
        amounts[MILLICPUS] += millicpus
        amounts[MEBIBYTES] += mebibytes
        amounts[MACHINE] = number
    return [
        (position, np.array([machines[number] for number in sorted(machines)], np.int64))
        for position, machines in sorted(sums.items())
    ]
