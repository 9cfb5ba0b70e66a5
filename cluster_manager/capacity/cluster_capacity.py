"""One cluster's machines and what every attempt holds on them, in arrays: the scheduler's hot data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeVarTuple

import numpy as np

from cluster_manager.capacity.attempts import (
    AttemptArrays,
    ChangedAttempt,
    HeldAttempt,
    HeldAttempts,
    check_priority,
    is_part_of,
)
from cluster_manager.capacity.charging import (
    ALL_FITS,
    ENTRY_COLUMNS,
    GPU_HELD,
    GPU_MISSING,
    MACHINE,
    NO_ENTRIES,
    first_conflict,
    mark_leaving,
)
from cluster_manager.capacity.check import check_capacity
from cluster_manager.capacity.cluster_tables import charge_entries, hold_entries, release_entries
from cluster_manager.capacity.errors import (
    GpuTaken,
    GrowsWhileLeaving,
    InvariantBroken,
    OverCommitted,
    UnexpectedHolding,
    UnknownMachine,
)
from cluster_manager.capacity.evictable_times import EvictableTimes
from cluster_manager.capacity.machine_entries import entries_of_placements
from cluster_manager.capacity.machines import ClusterLayout
from cluster_manager.capacity.released_capacity import ReleasedCapacity, ReleaseListener
from cluster_manager.capacity.shared_tables import NeverCopied, SharedTables
from cluster_manager.capacity.tables import (
    RESOURCE_NAMES,
    RESOURCES,
    SHAPE,
    ClusterArrays,
    Integers,
)
from cluster_manager.capacity.task_kinds import WHEN_EMPTY, TaskKind
from cluster_manager.capacity.undo_log import Tentatively
from domain.cells import CellsOfJobs
from domain.eviction import ALWAYS_S, DEFAULT_RULE, NEVER_S, EvictionRule
from domain.fleet import Cluster, MachineState
from domain.identifiers import MachineId
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.rank import Standing

Change = TypeVarTuple("Change")
"""What a primitive change is given."""


class ClusterCapacity(NeverCopied):
    """What one cluster has, and which attempt holds it.

    A newcomer is charged when it is decided, also on capacity that its victims have yet to leave; the victims stay
    charged until they are released. Meanwhile what is free is negative and counts as nothing: so capacity that is
    being freed is reserved for the newcomer that caused it.
    """

    def __init__(
        self,
        cluster: Cluster,
        states: Mapping[MachineId, MachineState] | None = None,
        shared: SharedTables | None = None,
        position: int = 0,
        rule: EvictionRule = DEFAULT_RULE,
    ) -> None:
        """An empty cluster; machines that `states` does not name are up. Raises UnknownMachine, ValueError.

        Clusters that are asked the same questions share their tables, each at its position.
        """
        self.cluster = cluster.cluster
        self.description = cluster
        """What it consists of, apart from what machines are doing."""
        self.rule = rule
        """How far evictions are bounded here."""
        self.shared = shared if shared is not None else SharedTables((cluster,))
        self.position = position
        """Among the clusters that share their tables."""
        self.alone = np.array([position], np.int64)
        """Its position, as kernels take the positions of several."""
        self.layout = ClusterLayout.of(cluster, states or {}, self.shared.shapes, self.shared.totals[position])
        self._states = [MachineState.UP] * len(self.layout.machine_ids)
        for machine, state in (states or {}).items():
            self._states[self.number_of(machine)] = state
        self._attempts = HeldAttempts(partial(self.shared.put, position, self.layout.arrays))
        self._evictable_times = EvictableTimes()
        self.time_matters = False
        """Whether an attempt that was ever held here may have become evictable by time."""
        self._counts = self.shared.counted.add_cluster(self.layout.arrays)
        self._undo_log = self.shared.undo_log
        self._listener: ReleaseListener | None = None
        self._supposed: list[tuple[Integers, int, HeldAttempt | None, int]] = []
        self._tables = self.shared.tables
        self._planned: tuple[tuple[TaskPlacement, ...], Integers] = ((), NO_ENTRIES)
        self.revision = self.shared.revision = next(self.shared.revisions)
        """As long as it is the same, every question has the same answer; a state that comes back has its old one."""

    # What is held.

    def hold(self, holding: Holding) -> None:
        """Charges the placements at once.

        Raises OverCommitted or GpuTaken when a machine would have too little even after all that are leaving have
        left, UnknownMachine, and UnexpectedHolding when the attempt is held already; then nothing has changed.
        """
        if holding.key in self._attempts.by_key:
            raise UnexpectedHolding(holding.key, "is held already")
        check_priority(holding.standing)
        live = HeldAttempt(holding, self._entries(holding.placements))
        self._charge(live, must_fit=True)
        if holding.evictable_from_s > ALWAYS_S:
            self._expect_evictable(holding)
        self._note(self._detach, live)

    def is_planned(self, placements: tuple[TaskPlacement, ...], entries: Integers) -> None:
        """The placements that are likely to be held next, with their entries: so these need not be summed up again."""
        self._planned = placements, entries

    def begin_eviction(self, key: AttemptKey) -> None:
        """The attempt is asked to leave: still charged, no longer a candidate victim. Again: nothing happens."""
        live = self._live(key)
        if not live.leaving:
            self._set_leaving(live, True)

    def release(self, key: AttemptKey) -> None:
        """The attempt is gone."""
        self._detach(self._live(key))

    def set_standing(self, key: AttemptKey, standing: Standing) -> None:
        """The attempt's place in the order of eviction from now on."""
        check_priority(standing)
        live = self._live(key)
        if live.holding.standing != standing:
            self._set_standing(live, standing)

    def begin_run(self, key: AttemptKey, started_s: float) -> None:
        """It runs since then, with nothing to lose yet: the minimum run time begins anew. Never makes it evictable earlier."""
        self.save_work(key, started_s)
        live = self._live(key)
        holding = live.holding
        if self.rule.minimum_run_time_s > 0.0:
            from_s = max(holding.evictable_from_s, started_s + self.rule.minimum_run_time_s)
            if from_s > holding.evictable_from_s:
                self._set_holding(live, holding._replace(evictable_from_s=from_s))
                self._expect_evictable(live.holding)

    def save_work(self, key: AttemptKey, saved_s: float) -> None:
        """Its work up to then is saved. Nothing happens where no decision goes by that, or if more is saved already."""
        live = self._live(key)
        if self.rule.spares_work and saved_s > live.holding.unsaved_since_s:
            self._set_holding(live, live.holding._replace(saved_s=saved_s))

    def replace_placements(self, key: AttemptKey, placements: tuple[TaskPlacement, ...], weight: int = 0) -> None:
        """The attempt holds these from now on instead (resized or tuned); `weight`: `Holding.whole_weight`.

        Raises as `hold`, and GrowsWhileLeaving when it is being evicted and would hold anything that it did not hold
        before; then nothing has changed.
        """
        live = self._live(key)
        entries = self._entries(placements)
        if live.leaving:
            if not is_part_of(entries, live.entries):
                raise GrowsWhileLeaving(key)
        else:
            tables, position = self._tables, self.position
            charge_entries(tables, position, live.entries, -1)
            try:
                entry, what = first_conflict(self.layout.arrays, entries)
                if entry != ALL_FITS:
                    self._refuse(entries, entry, what)
            finally:
                charge_entries(tables, position, live.entries, 1)
        self._exchange(live, live.holding._replace(placements=placements, whole_weight=weight), entries)

    def replace_cells(self, key: AttemptKey, cells: CellsOfJobs) -> None:
        """The attempt's jobs use these cells from now on, on the GPUs that they have. Raises UnexpectedHolding."""
        live = self._live(key)
        self._set_holding(live, live.holding._replace(cells=cells))
        if any(use.downgraded for _, use in cells):
            self._tell(live.entries)  # Owners may evict it from now on, and its virtual cluster may use its cells.

    def holding(self, key: AttemptKey) -> Holding | None:
        """What the attempt holds in this cluster; None when it holds nothing here."""
        live = self._attempts.by_key.get(key)
        return live.holding if live is not None else None

    def held(self) -> Iterator[tuple[Holding, bool]]:
        """What every live attempt holds here, and whether its eviction has begun; in no particular order."""
        return ((live.holding, live.leaving) for live in self._attempts.by_key.values())

    def changed_attempts(self, since: int) -> tuple[Sequence[ChangedAttempt] | None, int]:
        """Those changed since so many changes (None: too long ago, look at all `held`), and how many there have been."""
        return self._attempts.changed_since(since), self._attempts.changes

    def entries_of(self, key: AttemptKey) -> Integers:
        """What it holds, summed up per machine: the table `entries` of `AttemptArrays`. Raises UnexpectedHolding."""
        return self._live(key).entries

    def is_leaving(self, key: AttemptKey) -> bool:
        """Whether the attempt's eviction has begun. Raises UnexpectedHolding."""
        return self._live(key).leaving

    def set_machine_state(self, machine: MachineId, state: MachineState, *, say: bool = True) -> tuple[AttemptKey, ...]:
        """The machine's state from now on; returns the attempts on it, sorted by workload and attempt, if to `say` that.

        Unless it takes work, what it holds stays charged until released. Raises UnknownMachine.
        """
        number = self.number_of(machine)
        if self._states[number] is not state:
            self._set_state(number, state)
        return tuple(self._attempts.on_machine(number)) if say else ()

    def machine_state(self, machine: MachineId) -> MachineState:
        """What the machine is doing. Raises UnknownMachine."""
        return self._states[self.number_of(machine)]

    def idle(self, machine: MachineId) -> tuple[int, int, int]:
        """GPUs, thousandths of a CPU and MiB that are free there, whatever its state. Raises UnknownMachine."""
        free = self.layout.arrays.state[self.number_of(machine), :RESOURCES]
        gpus, millicpus, mebibytes = np.maximum(free, 0).tolist()
        return gpus, millicpus, mebibytes

    def capacity_of(self, machine: MachineId) -> tuple[int, int, int]:
        """GPUs, thousandths of a CPU and MiB that it has. Raises UnknownMachine."""
        arrays = self.layout.arrays
        gpus, millicpus, mebibytes = arrays.shapes[arrays.fixed[self.number_of(machine), SHAPE]].tolist()[:RESOURCES]
        return gpus, millicpus, mebibytes

    def number_of(self, machine: MachineId) -> int:
        """The machine's row in the tables. Raises UnknownMachine."""
        try:
            return self.layout.number_of_machine[machine]
        except KeyError:
            raise UnknownMachine(machine, f"is not in cluster {self.cluster}") from None

    def pass_time(self, now: float) -> None:
        """Tells the listener of the capacity of attempts that may be evicted because it is `now`.

        To be called before any memory of refusals is asked at `now`. Nothing happens inside `tentatively`.
        """
        if self._undo_log.tentative or now < self._evictable_times.next_s:
            return
        for key, from_s in self._evictable_times.pass_until(now):
            live = self._attempts.by_key.get(key)
            if live is not None and not live.leaving and live.holding.evictable_from_s == from_s:
                self._tell(live.entries, below_standing=live.holding.standing)

    @property
    def time_passed_s(self) -> float:
        """What was refused with an earlier `now` than this must not be remembered: time has released capacity since."""
        return self._evictable_times.passed_s

    @property
    def next_evictable_s(self) -> float:
        """When at the earliest time releases capacity again; infinity when it never does."""
        return self._evictable_times.next_s

    # What a mechanism looks at.

    @property
    def arrays(self) -> ClusterArrays:
        """The machines."""
        return self.layout.arrays

    @property
    def attempts(self) -> AttemptArrays:
        """The attempts; the next change may replace the arrays."""
        return self._attempts.arrays

    def victims_in(self, rows: Sequence[int]) -> tuple[Holding, ...]:
        """What the attempts in these rows hold. Raises LookupError."""
        holdings: list[Holding] = []
        for row in rows:
            live = self._attempts.by_row[row]
            if live is None:
                raise LookupError(f"row {row} holds no attempt")
            holdings.append(live.holding)
        return tuple(holdings)

    def rows_of(self, keys: Sequence[AttemptKey]) -> list[int]:
        """The rows of those among these attempts that hold something here, and -1 for the others."""
        by_key = self._attempts.by_key
        return [live.row if (live := by_key.get(key)) is not None else -1 for key in keys]

    def any_worse(self, standing: Standing) -> bool:
        """Whether any attempt has a strictly worse standing; those that are leaving count too."""
        order_keys = self._attempts.order_keys
        if not order_keys:
            return False
        worst = order_keys[0]
        return standing < (-worst[0], -worst[1])

    def when_empty(self, kind: TaskKind, tasks: int) -> int:
        """How many tasks would fit with nothing else here and all machines up; each machine counted up to `tasks`."""
        return int(self.layout.shape_count @ np.minimum(kind.needs.table[:, WHEN_EMPTY], tasks))

    def tentatively(self) -> AbstractContextManager[None]:
        """Everything done inside is undone at exit, also after an exception. May be nested."""
        return Tentatively(self._undo_log)

    @property
    def supposes(self) -> bool:
        """Whether something is supposed at the moment: then the counts do not say what is free."""
        return bool(self._supposed)

    def suppose_charged(self, entries: Integers) -> None:
        """Charges entries that no attempt holds, until `end_supposing`. Much cheaper than `hold`, tentatively."""
        self._suppose(entries, 1, None)

    def suppose_released(self, key: AttemptKey) -> None:
        """Does as if the attempt, which is not leaving, were gone, until `end_supposing`. Raises UnexpectedHolding."""
        live = self._live(key)
        self._suppose(live.entries, -1, live)
        self._attempts.set_evictable(live, evictable=False)

    def suppositions(self) -> Iterator[tuple[Integers, AttemptKey | None]]:
        """What is supposed at the moment, in order: entries that are charged, or those of an attempt that is released."""
        return ((entries, None if live is None else live.holding.key) for entries, _, live, _ in self._supposed)

    def end_supposing(self, kept: int = 0) -> None:
        """Everything is again as it was before the first supposition, or after the first ones that are kept."""
        while len(self._supposed) > kept:
            entries, sign, live, self.revision = self._supposed.pop()
            charge_entries(self._tables, self.position, entries, -sign)
            if live is not None:
                self._attempts.set_evictable(live, evictable=True)

    def listen(self, listener: ReleaseListener) -> None:
        """Tells the listener from now on whatever is released."""
        self._listener = listener

    def tell_of(self, key: AttemptKey) -> None:
        """Tells the listener that what the attempt holds may be available to anybody again. Raises UnexpectedHolding."""
        self._tell(self._live(key).entries)

    def check(self) -> None:
        """Computes everything anew from what is held and compares; raises InvariantBroken (I1 among others)."""
        check_capacity(self.layout, self._states, self._attempts)
        if not self._counts.are_right():
            raise InvariantBroken(f"cluster {self.cluster}: the counts of free capacity are not what counting gives")
        if self._supposed:
            raise InvariantBroken(f"cluster {self.cluster}: {len(self._supposed)} suppositions were not ended")

    # The primitive changes: each reports what it releases, and notes how it is undone.

    def _attach(self, live: HeldAttempt) -> None:
        self._charge(live, must_fit=False)
        self._note(self._detach, live)

    def _detach(self, live: HeldAttempt) -> None:
        self._give_back(live)
        self._tell_of_end(live, live.entries)
        self._note(self._attach, live)

    def _set_leaving(self, live: HeldAttempt, leaving: bool) -> None:
        self._mark(live, 1 if leaving else -1)
        self._attempts.set_leaving(live, leaving)
        if not leaving:
            self._tell(live.entries, below_standing=live.holding.standing)
        self._note(self._set_leaving, live, not leaving)

    def _set_standing(self, live: HeldAttempt, standing: Standing) -> None:
        old = live.holding
        self._attempts.rerank(live, old._replace(standing=standing))
        if not live.leaving and old.standing < standing:
            self._tell(live.entries, from_standing=old.standing, below_standing=standing)
        self._note(self._set_standing, live, old.standing)

    def _set_holding(self, live: HeldAttempt, holding: Holding) -> None:
        old = live.holding
        self._attempts.rerank(live, holding)
        self._note(self._set_holding, live, old)

    def _exchange(self, live: HeldAttempt, holding: Holding, entries: Integers) -> None:
        old_holding, old_entries = live.holding, live.entries
        self._give_back(live)
        live.holding, live.entries = holding, entries
        self._charge(live, must_fit=False)
        if not is_part_of(old_entries, entries):  # else nothing became free
            self._tell_of_end(live, old_entries)
        self._note(self._exchange, live, old_holding, old_entries)

    def _set_state(self, number: int, state: MachineState) -> None:
        old = self._states[number]
        self._states[number] = state
        if state.takes_work is not old.takes_work:
            self._counts.switch_work(number, takes_work=state.takes_work)
        if state.takes_work and not old.takes_work:
            arrays = self.layout.arrays
            entry = np.zeros((1, ENTRY_COLUMNS), np.int64)
            entry[0, :RESOURCES] = arrays.shapes[arrays.fixed[number, SHAPE]]
            entry[0, MACHINE] = number
            self._tell(entry)
        self._note(self._set_state, number, old)

    # Below them.

    def _expect_evictable(self, holding: Holding) -> None:
        """Notes when time will make the attempt evictable; what is tentative is gone before that."""
        self.time_matters = self.time_matters or ALWAYS_S < holding.evictable_from_s < NEVER_S
        self.shared.awaits_time = True
        if not self._undo_log.tentative:
            self._evictable_times.expect(holding)

    def _note(self, undo: Callable[[*Change], None], *change: *Change) -> None:
        """The state is another one from now on; where that is tentative, undoing it brings the old revision back."""
        if self._undo_log.tentative:
            self._undo_log.note(partial(self._undo, undo, change, self.revision, self.shared.revision))
        self.revision = self.shared.revision = next(self.shared.revisions)

    def _undo(self, undo: Callable[[*Change], None], change: tuple[*Change], old: int, old_of_all: int) -> None:
        undo(*change)
        self.revision, self.shared.revision = old, old_of_all

    def _suppose(self, entries: Integers, sign: int, live: HeldAttempt | None) -> None:
        """Charges (sign 1) or gives back (-1) without a note; the supposition has a revision of its own."""
        charge_entries(self._tables, self.position, entries, sign)
        self._supposed.append((entries, sign, live, self.revision))
        self.revision = self.shared.revision = next(self.shared.revisions)

    def _charge(self, live: HeldAttempt, *, must_fit: bool) -> None:
        """Charges an attempt, counted among the leaving if it is, and takes it in. Raises as `hold`."""
        rank = self._attempts.prepare(live)
        entries, counted, holding = live.entries, self.shared.counted.kinds, live.holding
        # Of a whole number instead of a time a kernel would have to be compiled anew.
        times_s = float(holding.evictable_from_s), float(holding.started_s)
        work = holding.weight, float(holding.unsaved_since_s), float(holding.checkpoint_interval_s)
        facts = *holding.standing, not live.leaving, holding.spared, *times_s, *work
        entry, what = hold_entries(
            self._tables, self.position, entries, counted, live.row, rank, live.first_entry, must_fit, *facts
        )
        if entry != ALL_FITS:
            self._refuse(entries, entry, what)
        self._attempts.add(live, rank)
        if live.leaving:
            self._mark(live, 1)

    def _give_back(self, live: HeldAttempt) -> None:
        """Gives back what an attempt holds, and forgets it."""
        if live.leaving:
            self._mark(live, -1)
        rank = release_entries(self._tables, self.position, self.shared.counted.kinds, live.row)
        self._attempts.remove(live, rank)

    def _mark(self, live: HeldAttempt, sign: int) -> None:
        mark_leaving(self.layout.arrays, live.entries, sign)

    def _tell_of_end(self, live: HeldAttempt, entries: Integers) -> None:
        """Tells that the attempt has these entries no more; who could have evicted it counted on them already."""
        counted_on = not (live.leaving or live.holding.spared or self._evictable_times.is_still_protected(live.holding))
        self._tell(entries, from_standing=live.holding.standing if counted_on else None)

    def _tell(
        self, entries: Integers, *, from_standing: Standing | None = None, below_standing: Standing | None = None
    ) -> None:
        """Tells what was released, unless that is tentative: it is undone before any newcomer could ask again."""
        if self._undo_log.tentative:
            return
        self.shared.releases += 1
        if self._listener is not None and self._listener.listens:
            machines, amounts = entries[:, MACHINE], entries[:, :RESOURCES]
            released = ReleasedCapacity(self.layout.arrays, machines, amounts, from_standing, below_standing)
            self._listener.capacity_released(released)

    def _live(self, key: AttemptKey) -> HeldAttempt:
        try:
            return self._attempts.by_key[key]
        except KeyError:
            raise UnexpectedHolding(key, "holds nothing here") from None

    def _entries(self, placements: tuple[TaskPlacement, ...]) -> Integers:
        if placements is self._planned[0]:
            return self._planned[1]
        return entries_of_placements(placements, self.cluster, self.number_of)

    def _refuse(self, entries: Integers, entry: int, what: int) -> None:
        """Raises what `first_conflict` found."""
        arrays = self.layout.arrays
        number = int(entries[entry, MACHINE])
        machine = self.layout.machine_ids[number]
        if what >= GPU_HELD:
            raise GpuTaken(machine, what - GPU_HELD, "is held by an attempt that stays")
        if what >= GPU_MISSING:
            raise GpuTaken(machine, what - GPU_MISSING, "does not exist")
        available = int(arrays.state[number, what] + arrays.leaving[number, what])
        raise OverCommitted(machine, RESOURCE_NAMES[what], int(entries[entry, what]), available)
