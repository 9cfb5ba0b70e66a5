"""What a plan's actions come to in the service: collected from the one `match`, then written in one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cluster_manager.attempt_run.events import Eviction
from domain.cells import CellsOfJobs
from domain.events import EventKind, EvictionCause
from domain.identifiers import MachineId, RegionId, WorkloadId
from domain.life_cycle import State
from domain.machine_life_cycle import MachineHappening
from domain.placement import AttemptKey, TaskPlacement, machines_of
from domain.placement_changes import (
    ChangeKind,
    ImpossibleAction,
    PlacementChange,
    change_of,
    check_gang,
    grown,
    placements_after,
)
from domain.plan import (
    Action,
    Downgrade,
    Evict,
    Migrate,
    Plan,
    Reclaim,
    Restore,
    Retune,
    ScaleIn,
    ScaleOut,
    Start,
    execute,
)
from domain.rank import Standing
from services.database import placement_change_store, reservation_store
from services.database.cell_store import write_cells
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.reservation_store import ReservedPlace
from services.regional_scheduler.live_attempts import RegionAttempts
from services.regional_scheduler.machine_states import record_machine_happening
from services.regional_scheduler.session_over import SessionOver


@dataclass(frozen=True, slots=True)
class NewPlacements:
    """What a running attempt is to hold, as the change of that number."""

    key: AttemptKey
    revision: int
    placements: tuple[TaskPlacement, ...]
    change: PlacementChange


@dataclass(frozen=True, slots=True)
class NewCells:
    """What jobs of a live attempt use from now on: they were downgraded, for that newcomer if any, or have cells again."""

    key: AttemptKey
    kind: EventKind
    cells: CellsOfJobs
    by: WorkloadId | None = None


@dataclass(slots=True)
class PlannedWrites:
    """Everything that a plan's actions want written, in their order."""

    evictions: list[tuple[AttemptKey, Eviction]] = field(default_factory=list)
    changes: list[NewPlacements] = field(default_factory=list)
    reservations: list[ReservedPlace] = field(default_factory=list)
    reclaimed: list[MachineId] = field(default_factory=list)
    cells: list[NewCells] = field(default_factory=list)


class PlanWriting:
    """Translates the actions of one or more plans, which are to be written together."""

    def __init__(self, region: RegionId, live: RegionAttempts, now: float) -> None:
        self.writes = PlannedWrites()
        self._region = region
        self._live = live
        self._now = now
        self._newcomer: tuple[AttemptKey, Standing] | None = None
        self._changed_by_plan: dict[AttemptKey, NewPlacements] = {}
        """The changes of the plan that is being added."""
        self._changed: set[AttemptKey] = set()
        """The attempts that `writes.changes` change."""
        self._releasing: dict[MachineId, set[AttemptKey]] = {}
        """Those of them that release something on a machine."""

    def add(self, plan: Plan, newcomer: tuple[AttemptKey, Standing] | None = None) -> None:
        """What is to be written for the plan too. `newcomer` is what its `Start` starts.

        Raises ImpossibleAction for an attempt that is not live here, or whose last change is not carried out yet.
        """
        self._newcomer = newcomer
        self._changed_by_plan.clear()
        execute(plan.actions, self)

    def add_actions(self, actions: Iterable[Action]) -> None:
        """What is to be written for actions that make room for nothing. Raises as `add`."""
        self._newcomer = None
        self._changed_by_plan.clear()
        execute(actions, self)

    def start(self, action: Start) -> None:
        """The new attempt itself is written with its dispatch, with what the award says of it."""
        del action
        if self._newcomer is None:
            raise ValueError("a plan that starts a workload is written for that workload")

    def evict(self, action: Evict) -> None:
        if self._newcomer is None:
            raise ValueError(f"{action.victim} is to make room for no workload")
        eviction = Eviction(EvictionCause.PREEMPTED, *self._newcomer, own_cells=action.own_cells)
        self.writes.evictions.append((action.victim, eviction))

    def downgrade(self, action: Downgrade) -> None:
        by = self._newcomer[0].workload if self._newcomer is not None else None
        self.writes.cells.append(NewCells(action.attempt, EventKind.DOWNGRADED, action.cells, by))

    def restore(self, action: Restore) -> None:
        self.writes.cells.append(NewCells(action.attempt, EventKind.RESTORED, action.cells))

    def scale_in(self, action: ScaleIn) -> None:
        self._change(action)

    def scale_out(self, action: ScaleOut) -> None:
        self._change(action)

    def retune(self, action: Retune) -> None:
        self._change(action)

    def migrate(self, action: Migrate) -> None:
        place = ReservedPlace(action.attempt.successor, self._region, self._now, action.placements, action.room_for)
        self.writes.reservations.append(place)
        if self._live.get(action.attempt) is not None:
            self.writes.evictions.append((action.attempt, migration_to(place)))

    def reclaim(self, action: Reclaim) -> None:
        self.writes.reclaimed.extend(action.machines)
        reclaimed = Eviction(EvictionCause.RECLAIMED)
        self.writes.evictions.extend((victim, reclaimed) for victim in action.victims)

    def _change(self, action: ScaleIn | ScaleOut | Retune) -> None:
        attempt = self._live.get(action.attempt)
        if attempt is None or attempt.state is not State.RUNNING:
            raise ImpossibleAction(action.attempt, f"{action.attempt.workload} does not run in region {self._region}")
        same_plan = self._changed_by_plan.get(action.attempt)
        if attempt.change is not None or (action.attempt in self._changed and same_plan is None):
            wait = "is not carried out yet; try again when topmast events shows that it is"
            raise ImpossibleAction(action.attempt, f"the last change of {action.attempt.workload} {wait}")
        after = placements_after(action, attempt.placements if same_plan is None else same_plan.placements)
        check_gang(action.attempt, attempt.specification, after)
        if not {placement.cluster for placement in after} <= set(attempt.clusters):
            raise ImpossibleAction(action.attempt, "an attempt gets nothing in clusters in which it was not started")
        gets_more_on = frozenset(placement.machine for placement in grown(attempt.placements, after))
        earlier = {key for machine in gets_more_on for key in self._releasing.get(machine, ())} - {action.attempt}
        waits_for = earlier | set(self._live.giving_up_on(gets_more_on, but=action.attempt))
        change = replace(change_of(action, attempt.placements, after), waits_for=tuple(sorted(waits_for)))
        if same_plan is not None:
            # It gives up tasks, and CPUs of those that it keeps: that is one change to carry out.
            change = replace(change, kind=ChangeKind.RESIZED)
            self.writes.changes.remove(same_plan)
            for placement in same_plan.change.released:
                self._releasing[placement.machine].discard(action.attempt)
        new = NewPlacements(action.attempt, attempt.revision + 1, after, change)
        self.writes.changes.append(new)
        self._changed.add(action.attempt)
        self._changed_by_plan[action.attempt] = new
        for placement in change.released:
            self._releasing.setdefault(placement.machine, set()).add(action.attempt)


def migration_to(place: ReservedPlace) -> Eviction:
    """Why an attempt leaves for whose successor this place is kept."""
    return Eviction(EvictionCause.MIGRATED, to=machines_of(place.placements), room_for=place.room_for)


async def write_changes(connection: AnyConnection, region: RegionId, writes: PlannedWrites, now: float) -> None:
    """Writes everything but the evictions.

    Raises SessionOver when the database knows an attempt or a machine otherwise, and ImpossibleAction for a migration
    that cannot begin: the attempt may be another region's, so this region cannot know.
    """
    for new in writes.changes:
        if not await placement_change_store.begin_change(
            connection, new.key, new.revision, new.placements, new.change, now
        ):
            raise SessionOver(f"{new.key} does not run in the database, or was changed meanwhile")
    if any(new.change.released for new in writes.changes):
        # What is given up may be more than what it was given up for.
        wake_after_commit(connection, SCAN_CHANNEL)
    await write_cells(connection, [(new.key, new.cells) for new in writes.cells])
    for place in writes.reservations:
        if not await reservation_store.reserve(connection, place):
            problem = f"{place.key.workload} does not run any more, or migrates already"
            raise ImpossibleAction(place.key, problem)
    for machine in writes.reclaimed:
        happening, reason = MachineHappening.ASKED_BACK, "its lender wants it back"
        if await record_machine_happening(connection, region, machine, happening, reason, now) is None:
            raise SessionOver(f"machine {machine} is not on loan in the database")
