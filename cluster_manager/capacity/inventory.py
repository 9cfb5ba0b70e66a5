"""The machines of a region's clusters and who holds what on them, in arrays: the scheduler's hot data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np

from cluster_manager.capacity.attempts import Live, LiveAttempts
from cluster_manager.capacity.charging import (
    ALL_FITS,
    CLUSTER_END,
    ENTRY_COLUMNS,
    GPU_BITS,
    GPU_HELD,
    GPU_MISSING,
    MACHINE,
    first_conflict,
    mark_leaving,
)
from cluster_manager.capacity.check import check_inventory
from cluster_manager.capacity.errors import (
    GpuTaken,
    GrowsWhileLeaving,
    InvariantBroken,
    OverCommitted,
    UnexpectedHolding,
    UnknownMachine,
)
from cluster_manager.capacity.evictable_times import EvictableTimes
from cluster_manager.capacity.free_counts import FreeCounts
from cluster_manager.capacity.machines import (
    CLUSTER,
    GPUS,
    MEBIBYTES,
    MILLICPUS,
    MOST_GPUS,
    RESOURCE_NAMES,
    RESOURCES,
    SHAPE,
    Integers,
    Layout,
)
from cluster_manager.capacity.released_capacity import CapacityWatcher, ReleasedCapacity
from cluster_manager.capacity.requests import Request
from cluster_manager.capacity.undo_log import Tentatively, UndoLog
from cluster_manager.eviction.required_victims import find_required_victims
from cluster_manager.packing.placing import Place, Places, find_place, find_places
from domain.eviction import DEFAULT_RULE, EvictionRule
from domain.fleet import MachineState, Region
from domain.identifiers import MachineId
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.rank import Standing
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY


class Inventory:
    """What one region has, and who holds it.

    A newcomer is charged when it is decided, also on capacity that its victims have yet to leave; the victims stay
    charged until they are released. Meanwhile what is free is negative and counts as nothing: so capacity that is
    being freed is reserved for the one that caused it.
    """

    def __init__(
        self,
        region: Region,
        states: Mapping[MachineId, MachineState] | None = None,
        rule: EvictionRule = DEFAULT_RULE,
    ) -> None:
        """An empty region; machines that `states` does not name are up. Raises UnknownMachine, ValueError."""
        self.region = region.region
        self.rule = rule
        """How far evictions are bounded in this region."""
        self.layout = Layout.of(region, states or {})
        self._states = [MachineState.UP] * len(self.layout.machine_ids)
        for machine, state in (states or {}).items():
            self._states[self._number(machine)] = state
        self._attempts = LiveAttempts()
        self._evictable_times = EvictableTimes()
        self._free_room = FreeCounts(self.layout)
        self._journal = UndoLog()
        self._watchers: list[CapacityWatcher] = []
        self.growths = 0
        """How often there may have come to be more room for somebody: while it stays, who found none finds none."""

    # What is held.

    def hold(self, holding: Holding) -> None:
        """Charges the placements at once.

        Raises OverCommitted or GpuTaken when a machine would have too little even after all that are leaving have
        left, UnknownMachine, and UnexpectedHolding when the attempt is held already; then nothing has changed.
        """
        if holding.key in self._attempts.by_key:
            raise UnexpectedHolding(holding.key, "is held already")
        if not HIGHEST_PRIORITY <= holding.standing.priority <= LOWEST_PRIORITY:
            raise ValueError(f"priority {holding.standing.priority} is not in {HIGHEST_PRIORITY} to {LOWEST_PRIORITY}")
        live = Live(holding, self._entries(holding.placements))
        self._refuse(live.entries, *self._free_room.charge_if_it_fits(live.entries))
        self._attempts.add(live)
        self._expect_evictable(holding)
        self._journal.note(lambda: self._detach(live))

    def begin_eviction(self, key: AttemptKey) -> None:
        """The attempt was told to leave: still charged, no longer a candidate victim. Again: nothing happens."""
        live = self._live(key)
        if not live.leaving:
            self._set_leaving(live, True)

    def release(self, key: AttemptKey) -> None:
        """The attempt is gone."""
        self._detach(self._live(key))

    def set_standing(self, key: AttemptKey, standing: Standing) -> None:
        """The attempt's place in the order of eviction from now on."""
        if not HIGHEST_PRIORITY <= standing.priority <= LOWEST_PRIORITY:
            raise ValueError(f"priority {standing.priority} is not in {HIGHEST_PRIORITY} to {LOWEST_PRIORITY}")
        live = self._live(key)
        if live.holding.standing != standing:
            self._set_standing(live, standing)

    def begin_run(self, key: AttemptKey, started_s: float) -> None:
        """The attempt runs since then: the minimum run time begins anew. Never makes it evictable earlier."""
        live = self._live(key)
        holding = live.holding
        if self.rule.minimum_run_time_s > 0.0:
            from_s = max(holding.evictable_from_s, started_s + self.rule.minimum_run_time_s)
            if from_s > holding.evictable_from_s:
                self._set_holding(live, holding._replace(evictable_from_s=from_s))
                self._expect_evictable(live.holding)

    def replace_placements(self, key: AttemptKey, placements: tuple[TaskPlacement, ...]) -> None:
        """The attempt holds these from now on instead (resized or tuned).

        Raises as `hold`, and GrowsWhileLeaving when it is being evicted and would hold anything that it did not hold
        before; then nothing has changed.
        """
        live = self._live(key)
        entries = self._entries(placements)
        if live.leaving:
            if not _is_part_of(entries, live.entries):
                raise GrowsWhileLeaving(key)
        else:
            self._shift(live, -1)
            try:
                self._refuse(entries, *first_conflict(self.layout.arrays, entries))
            finally:
                self._shift(live, 1)
        self._exchange(live, live.holding._replace(placements=placements), entries)

    def holding(self, key: AttemptKey) -> Holding | None:
        """What the attempt holds; None when it holds nothing here."""
        live = self._attempts.by_key.get(key)
        return live.holding if live is not None else None

    def entries_of(self, key: AttemptKey) -> Integers:
        """What it holds, summed up per machine: the table `entries` of `AttemptArrays`. Raises UnexpectedHolding."""
        return self._live(key).entries

    def holdings(self) -> tuple[Holding, ...]:
        """All that is held, sorted by workload and attempt."""
        return tuple(
            self._attempts.by_key[key].holding
            for key in sorted(self._attempts.by_key, key=lambda key: (key.workload, key.attempt))
        )

    def is_leaving(self, key: AttemptKey) -> bool:
        """Whether the attempt's eviction has begun. Raises UnexpectedHolding."""
        return self._live(key).leaving

    # Machines.

    def set_machine_state(self, machine: MachineId, state: MachineState) -> tuple[AttemptKey, ...]:
        """The machine's state from now on; returns who is on it, sorted by workload and attempt.

        Unless it is up or on loan, a machine takes no work; what it holds stays charged until released. Raises
        UnknownMachine.
        """
        number = self._number(machine)
        if self._states[number] is not state:
            self._set_state(number, state)
        return tuple(self._attempts.on_machine(number))

    def machine_state(self, machine: MachineId) -> MachineState:
        """What the machine is doing. Raises UnknownMachine."""
        return self._states[self._number(machine)]

    def idle(self, machine: MachineId) -> tuple[int, int, int]:
        """GPUs, thousandths of a CPU and MiB that nobody holds there, whatever its state. Raises UnknownMachine."""
        gpus, millicpus, mebibytes = np.maximum(self.layout.arrays.state[self._number(machine), :RESOURCES], 0).tolist()
        return gpus, millicpus, mebibytes

    # Time.

    def pass_time(self, now: float) -> None:
        """Tells the watchers of room that attempts make because by `now` they may be evicted.

        To be called before any memory of refusals is asked at `now`. Nothing happens inside `tentatively`.
        """
        if self._journal.tentative or now < self._evictable_times.next_s:
            return
        for key, from_s in self._evictable_times.pass_until(now):
            live = self._attempts.by_key.get(key)
            if live is not None and not live.leaving and live.holding.evictable_from_s == from_s:
                self._tell_of(live.entries, below_standing=live.holding.standing)

    @property
    def time_passed_s(self) -> float:
        """What was refused with an earlier `now` than this must not be remembered: time has made room since."""
        return self._evictable_times.passed_s

    @property
    def next_evictable_s(self) -> float:
        """When at the earliest time makes room again; infinity when it never does."""
        return self._evictable_times.next_s

    # Thinking ahead.

    def room_for(self, request: Request) -> tuple[int, ...]:
        """Per cluster, for how many of the job's tasks there is room without evictions, at most all of them.

        Empty when too many kinds of jobs were asked for: nobody has counted then.
        """
        room = self._free_room.of(request)
        return () if room is None else tuple(np.minimum(room, request.tasks).tolist())

    def finds_nothing(self, request: Request, standing: Standing) -> bool:
        """True when a job surely finds no place, not even by evicting; False says nothing. Costs next to nothing."""
        room = self._free_room.of(request)
        return room is not None and self.room_is_short(room, request.tasks, standing)

    def free_room(self, request: Request) -> Integers | None:
        """Per cluster, for how many tasks like these there is room without evictions; changes with the inventory.

        None when too many kinds of jobs were asked for: nobody has counted then.
        """
        return self._free_room.of(request)

    def room_is_short(self, room: Integers, tasks: int, standing: Standing) -> bool:
        """True when the `free_room` of a request does not do for so many tasks, and nobody can be evicted for them."""
        # Most regions that are asked often have one cluster.
        most = room[0] if len(room) == 1 else room.max(initial=0)
        return bool(most < tasks) and not self._attempts.anybody_worse(standing)

    def tentatively(self) -> AbstractContextManager[None]:
        """Everything done inside is undone at exit, also after an exception. May be nested."""
        return Tentatively(self._journal)

    def find_places(
        self,
        requests: Sequence[Request],
        standing: Standing,
        now_s: float,
        *,
        evicting: bool,
        clusters: Sequence[int] = (),
        gone: Sequence[int] = (),
    ) -> Places:
        """The best place for each of several jobs in turn: see `cluster_manager.packing.placing`. Nothing changes."""
        return find_places(
            self.layout,
            self._attempts.arrays,
            requests,
            standing,
            now_s,
            evicting=evicting,
            clusters=clusters,
            gone=gone,
        )

    def find_place(self, request: Request, standing: Standing, now_s: float) -> Place | tuple[int, ...]:
        """The best place for one job, or the room that there is: see `cluster_manager.packing.placing`. Nothing changes."""
        return find_place(self.layout, self._attempts.arrays, request, standing, now_s)

    def find_required_victims(
        self, requests: Sequence[Request], clusters: Sequence[int], gone: Sequence[int]
    ) -> tuple[bool, ...]:
        """Which of these victims must surely go for the jobs in these clusters: see `cluster_manager.eviction.required_victims`."""
        return find_required_victims(self.layout, self._attempts.arrays, requests, clusters, gone)

    def holding_in_row(self, row: int) -> Holding:
        """What a victim holds that `find_places` named by its row. Raises LookupError."""
        live = self._attempts.by_row[row]
        if live is None:
            raise LookupError(f"row {row} holds no attempt")
        return live.holding

    def watch(self, watcher: CapacityWatcher) -> None:
        """Tells the watcher from now on whenever there is more room for somebody."""
        self._watchers.append(watcher)

    def check(self) -> None:
        """Computes everything anew from what is held and compares; raises InvariantBroken (I1 among others)."""
        check_inventory(self.layout, self._states, self._attempts)
        if not np.array_equal(self._free_room.counted, self._free_room.recounted()):
            raise InvariantBroken("the room that is kept up to date is not the room that there is")

    # The primitive changes: each tells of the room that it makes, and notes how it is undone.

    def _attach(self, live: Live) -> None:
        self._attempts.add(live)
        self._shift(live, 1)
        self._journal.note(lambda: self._detach(live))

    def _detach(self, live: Live) -> None:
        self._shift(live, -1)
        self._attempts.remove(live)
        self._tell_of(live.entries, from_standing=self._was_room_from(live))
        self._journal.note(lambda: self._attach(live))

    def _set_leaving(self, live: Live, leaving: bool) -> None:
        self._mark(live, 1 if leaving else -1)
        self._attempts.set_leaving(live, leaving)
        if not leaving:
            self._tell_of(live.entries, below_standing=live.holding.standing)
        self._journal.note(lambda: self._set_leaving(live, not leaving))

    def _set_standing(self, live: Live, standing: Standing) -> None:
        old = live.holding
        self._attempts.rerank(live, old._replace(standing=standing))
        if not live.leaving and old.standing < standing:
            self._tell_of(live.entries, from_standing=old.standing, below_standing=standing)
        self._journal.note(lambda: self._set_standing(live, old.standing))

    def _set_holding(self, live: Live, holding: Holding) -> None:
        old = live.holding
        self._attempts.rerank(live, holding)
        self._journal.note(lambda: self._set_holding(live, old))

    def _exchange(self, live: Live, holding: Holding, entries: Integers) -> None:
        old_holding, old_entries = live.holding, live.entries
        self._shift(live, -1)
        self._attempts.remove(live)
        live.holding, live.entries = holding, entries
        self._attempts.add(live)
        self._shift(live, 1)
        self._tell_of(old_entries, from_standing=self._was_room_from(live))
        self._journal.note(lambda: self._exchange(live, old_holding, old_entries))

    def _set_state(self, number: int, state: MachineState) -> None:
        old = self._states[number]
        self._states[number] = state
        if state.takes_work is not old.takes_work:
            self._free_room.switch_work(number, takes_work=state.takes_work)
        if state.takes_work and not old.takes_work:
            arrays = self.layout.arrays
            capacity = arrays.shapes[arrays.fixed[number, SHAPE], :RESOURCES].reshape(1, RESOURCES)
            self._tell(ReleasedCapacity(self.layout, np.array([number], np.int64), capacity))
            self.growths += 1
        self._journal.note(lambda: self._set_state(number, old))

    # Below them.

    def _was_room_from(self, live: Live) -> Standing | None:
        """Newcomers of a better standing than this counted what the attempt holds as room already; None: none did."""
        if live.leaving or live.holding.spared or self._evictable_times.is_still_protected(live.holding):
            return None
        return live.holding.standing

    def _expect_evictable(self, holding: Holding) -> None:
        """Notes when time will make the attempt evictable; what is tentative is gone before that."""
        if not self._journal.tentative:
            self._evictable_times.expect(holding)

    def _shift(self, live: Live, sign: int) -> None:
        """Charges an attempt's entries (1) or gives them back (-1), counted among the leaving if it is."""
        if live.leaving and sign < 0:
            self._mark(live, sign)
        self._free_room.charge(live.entries, sign)
        if live.leaving and sign > 0:
            self._mark(live, sign)

    def _mark(self, live: Live, sign: int) -> None:
        mark_leaving(self.layout.arrays, live.entries, sign)

    def _tell_of(
        self, entries: Integers, *, from_standing: Standing | None = None, below_standing: Standing | None = None
    ) -> None:
        if self._journal.tentative:
            return
        self.growths += 1
        if any(watcher.listens for watcher in self._watchers):
            machines, amounts = entries[:, MACHINE], entries[:, :RESOURCES]
            self._tell(ReleasedCapacity(self.layout, machines, amounts, from_standing, below_standing))

    def _tell(self, growth: ReleasedCapacity) -> None:
        """Tells the watchers, unless the change is tentative: that is undone before they could be asked again."""
        if not self._journal.tentative:
            for watcher in self._watchers:
                watcher.capacity_released(growth)

    def _live(self, key: AttemptKey) -> Live:
        try:
            return self._attempts.by_key[key]
        except KeyError:
            raise UnexpectedHolding(key, "holds nothing here") from None

    def _number(self, machine: MachineId) -> int:
        try:
            return self.layout.number_of_machine[machine]
        except KeyError:
            raise UnknownMachine(machine, f"is not in region {self.region}") from None

    def _entries(self, placements: tuple[TaskPlacement, ...]) -> Integers:
        """The placements summed up per machine, in machine order."""
        held: dict[int, list[int]] = {}
        layout = self.layout
        for placement in placements:
            number = self._number(placement.machine)
            if layout.cluster_of_machine[number] != placement.cluster:
                told = f"is in cluster {layout.cluster_of_machine[number]}, not in {placement.cluster}"
                raise UnknownMachine(placement.machine, told)
            sums = held.setdefault(number, [0] * (RESOURCES + 1))
            sums[GPUS] += len(placement.gpu_indices)
            sums[MILLICPUS] += placement.millicpus
            sums[MEBIBYTES] += placement.mebibytes
            for gpu in placement.gpu_indices:
                if not 0 <= gpu < MOST_GPUS or sums[RESOURCES] >> gpu & 1:
                    raise GpuTaken(placement.machine, gpu, "is asked for twice or does not exist")
                sums[RESOURCES] |= 1 << gpu
        rows = [(*held[number][:RESOURCES], number, held[number][RESOURCES], 1, 0) for number in sorted(held)]
        entries = np.array(rows, np.int64).reshape(-1, ENTRY_COLUMNS)
        if len(rows) == 1:
            return entries
        cluster = layout.arrays.fixed[entries[:, MACHINE], CLUSTER]
        entries[:, CLUSTER_END] = np.searchsorted(cluster, cluster, side="right")
        return entries

    def _refuse(self, entries: Integers, entry: int, what: int) -> None:
        """Raises what `first_conflict` found."""
        if entry == ALL_FITS:
            return
        arrays = self.layout.arrays
        number = int(entries[entry, MACHINE])
        machine = self.layout.machine_ids[number]
        if what >= GPU_HELD:
            raise GpuTaken(machine, what - GPU_HELD, "is held by an attempt that stays")
        if what >= GPU_MISSING:
            raise GpuTaken(machine, what - GPU_MISSING, "does not exist")
        available = int(arrays.state[number, what] + arrays.leaving[number, what])
        raise OverCommitted(machine, RESOURCE_NAMES[what], int(entries[entry, what]), available)


def _is_part_of(entries: Integers, whole: Integers) -> bool:
    """Whether everything in these entries is held by the others too."""
    if not np.all(np.isin(entries[:, MACHINE], whole[:, MACHINE])):
        return False
    there = whole[np.searchsorted(whole[:, MACHINE], entries[:, MACHINE])]
    same_gpus = np.all((entries[:, GPU_BITS] & ~there[:, GPU_BITS]) == 0)
    return bool(same_gpus and np.all(entries[:, :RESOURCES] <= there[:, :RESOURCES]))
