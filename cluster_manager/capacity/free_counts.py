"""For how many tasks of a kind each cluster has room without evictions: counted once, then kept up to date.

Most questions of a saturated queue are answered by one look here. Exact: a job finds a place that evicts nobody if and
only if some cluster has room for all of its tasks, for its tasks are alike and never stand in each other's way.
"""

from __future__ import annotations

import numpy as np

from cluster_manager.capacity.charging import ALL_FITS, CHARGE, FIRST, MACHINE, charge, first_conflict, switch_work
from cluster_manager.capacity.machines import CLUSTER, NO_WORK, RESOURCES, WORKS_AS, FleetArrays, Integers, Layout
from cluster_manager.capacity.needs import needs_of
from cluster_manager.capacity.requests import MOST_TASKS, Request
from cluster_manager.kernels.compiled import compiled, compiled_part

MOST_KINDS = 64
"""So many are kept up to date at most: each costs every charge some nanoseconds per machine."""


@compiled_part
def room_of_kind(fleet: FleetArrays, need: Integers, whole_room: Integers, kind: int, machine: int) -> int:
    """How many tasks of the kind the machine has room for now."""
    shape = fleet.state[machine, WORKS_AS]
    if shape == NO_WORK:
        return 0
    room = whole_room[kind, shape]
    if room == 0:
        return 0
    for resource in range(RESOURCES):
        amount = need[kind, shape, resource]
        if amount > 0:
            free = fleet.state[machine, resource]
            if free < amount:
                return 0
            room = min(room, int(free / amount))
    return int(room)


@compiled_part
def count_rooms(
    fleet: FleetArrays, entries: Integers, need: Integers, whole_room: Integers, room: Integers, kinds: int, sign: int
) -> None:
    """Adds (sign 1) or takes away (-1) the room that these machines have for each kind."""
    for entry in range(len(entries)):
        machine = entries[entry, MACHINE]
        cluster = fleet.fixed[machine, CLUSTER]
        for kind in range(kinds):
            room[kind, cluster] += sign * room_of_kind(fleet, need, whole_room, kind, machine)


@compiled
def charge_and_count(
    fleet: FleetArrays,
    entries: Integers,
    need: Integers,
    whole_room: Integers,
    room: Integers,
    kinds: int,
    sign: int,
) -> None:
    """Charges all entries of the table (sign 1) or gives them back (sign -1), and keeps the rooms up to date."""
    count_rooms(fleet, entries, need, whole_room, room, kinds, -1)
    charge(fleet, entries, FIRST, len(entries), sign)
    count_rooms(fleet, entries, need, whole_room, room, kinds, 1)


@compiled
def charge_if_it_fits(
    fleet: FleetArrays, entries: Integers, need: Integers, whole_room: Integers, room: Integers, kinds: int
) -> tuple[int, int]:
    """Charges all entries of the table unless one of them does not fit: see `first_conflict`."""
    entry, what = first_conflict(fleet, entries)
    if entry == ALL_FITS:
        count_rooms(fleet, entries, need, whole_room, room, kinds, -1)
        charge(fleet, entries, FIRST, len(entries), CHARGE)
        count_rooms(fleet, entries, need, whole_room, room, kinds, 1)
    return entry, what


@compiled
def switch_and_count(
    fleet: FleetArrays,
    machine: int,
    takes_work: bool,
    need: Integers,
    whole_room: Integers,
    room: Integers,
    kinds: int,
) -> None:
    """Lets the machine take work from now on, or no longer, and keeps the rooms up to date."""
    cluster = fleet.fixed[machine, CLUSTER]
    for kind in range(kinds):
        room[kind, cluster] -= room_of_kind(fleet, need, whole_room, kind, machine)
    switch_work(fleet, machine, takes_work)
    for kind in range(kinds):
        room[kind, cluster] += room_of_kind(fleet, need, whole_room, kind, machine)


@compiled
def count_all(fleet: FleetArrays, need: Integers, whole_room: Integers, room: Integers, kind: int) -> None:
    """Counts the room for one kind anew, on all machines."""
    for cluster in range(room.shape[1]):
        room[kind, cluster] = 0
    for machine in range(len(fleet.state)):
        room[kind, fleet.fixed[machine, CLUSTER]] += room_of_kind(fleet, need, whole_room, kind, machine)


class FreeCounts:
    """The kinds that were asked for, and the room that each cluster has for them. Made for one layout."""

    __slots__ = ("_kinds", "_layout", "_need", "_room", "_whole_room")

    def __init__(self, layout: Layout) -> None:
        shapes, clusters = len(layout.arrays.shapes), len(layout.cluster_ids)
        self._layout = layout
        self._kinds: dict[tuple[int, int, int, int], int] = {}
        self._need = np.zeros((MOST_KINDS, shapes, RESOURCES), np.int64)
        self._whole_room = np.zeros((MOST_KINDS, shapes), np.int64)
        self._room = np.zeros((MOST_KINDS, clusters), np.int64)

    def of(self, request: Request) -> Integers | None:
        """Per cluster, for how many tasks like these there is room now; None when too many kinds were asked for.

        The array changes with the inventory.
        """
        key = (request.gpus, request.model, request.millicpus, request.mebibytes)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) == MOST_KINDS:
                return None
            kind = self._kinds[key] = len(self._kinds)
            self._need[kind], self._whole_room[kind] = needs_of(self._layout, request._replace(tasks=MOST_TASKS))
            count_all(self._layout.arrays, self._need, self._whole_room, self._room, kind)
        room: Integers = self._room[kind]
        return room

    def charge(self, entries: Integers, sign: int) -> None:
        """Charges the entries in the fleet's arrays (sign 1) or gives them back (-1)."""
        charge_and_count(self._layout.arrays, entries, self._need, self._whole_room, self._room, len(self._kinds), sign)

    def charge_if_it_fits(self, entries: Integers) -> tuple[int, int]:
        """Charges the entries, unless there is a conflict: returns what `first_conflict` does."""
        kinds = len(self._kinds)
        return charge_if_it_fits(self._layout.arrays, entries, self._need, self._whole_room, self._room, kinds)

    def switch_work(self, machine: int, *, takes_work: bool) -> None:
        """The machine takes work from now on, or no longer."""
        switch_and_count(
            self._layout.arrays, machine, takes_work, self._need, self._whole_room, self._room, len(self._kinds)
        )

    def recounted(self) -> Integers:
        """[kind, cluster]: everything counted anew, to compare with."""
        room = np.zeros_like(self._room)
        for kind in range(len(self._kinds)):
            count_all(self._layout.arrays, self._need, self._whole_room, room, kind)
        return room

    @property
    def counted(self) -> Integers:
        """[kind, cluster]: the room as it is kept."""
        return self._room
