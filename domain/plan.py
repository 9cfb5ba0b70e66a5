"""A plan is a list of actions, and this file has the only `match` over them.

Everything that carries plans out (the capacity of a region, the live service, the simulator) implements
`PlanExecution` and is driven by `execute`: a new kind of action is a type error wherever it is not handled yet.

Actions are carried out in their order, and each must be possible when those before it are: what gives room
back stands before what takes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeAlias, assert_never

from domain.cells import CellsOfJobs
from domain.identifiers import JobName, MachineId, RegionId, WorkloadId
from domain.placement import AttemptKey, Score, TaskPlacement


class TaskName(NamedTuple):
    """A task of an attempt."""

    job: JobName
    task: int


class TaskAmounts(NamedTuple):
    """What a task holds of the resources that can be tuned."""

    name: TaskName
    millicpus: int
    mebibytes: int


class Start(NamedTuple):
    """The plan's own workload begins an attempt here: all base tasks, as a gang."""

    placements: tuple[TaskPlacement, ...]
    cells: CellsOfJobs = ()
    """Of the jobs that use cells of a virtual cluster."""


NO_START = Start(())


class Evict(NamedTuple):
    """An attempt of strictly worse standing makes room (MAST §4.3): it saves its work and returns to the queue."""

    victim: AttemptKey
    own_cells: bool = False
    """The plan's workload owns the cells that the victim uses opportunistically: it leaves whatever its standing, and
    however short it has run (HiveD §3)."""


class Downgrade(NamedTuple):
    """A running attempt loses cells to its own virtual cluster and goes on opportunistically where it is (HiveD §3.1)."""

    attempt: AttemptKey
    cells: CellsOfJobs
    """Of its jobs that lose them, from then on."""


class Restore(NamedTuple):
    """A downgraded attempt gets cells of its virtual cluster again, where it is."""

    attempt: AttemptKey
    cells: CellsOfJobs
    """Of its jobs that get them, from then on."""


class ScaleIn(NamedTuple):
    """A running attempt goes on without these flexible tasks (Lyra §4, §5.2)."""

    attempt: AttemptKey
    released: tuple[TaskName, ...]


class ScaleOut(NamedTuple):
    """A running attempt gets these flexible tasks too (Lyra §5.2, the second phase)."""

    attempt: AttemptKey
    added: tuple[TaskPlacement, ...]


class Retune(NamedTuple):
    """Tasks of a running attempt hold other amounts of CPU and memory, on the same machines and GPUs (Synergy §4.2)."""

    attempt: AttemptKey
    amounts: tuple[TaskAmounts, ...]


class Migrate(NamedTuple):
    """An attempt saves its work and stops; its successor starts in these places without going through the queue."""

    attempt: AttemptKey
    placements: tuple[TaskPlacement, ...]
    room_for: WorkloadId | None = None
    """The workload that waits for the place that it leaves; None: it moves for its own sake."""


class Reclaim(NamedTuple):
    """Machines go back to their lender (Lyra §4): they take nothing new, and these attempts, all that is on them, leave."""

    machines: tuple[MachineId, ...]
    victims: tuple[AttemptKey, ...]


Action: TypeAlias = Start | Evict | Downgrade | Restore | ScaleIn | ScaleOut | Retune | Migrate | Reclaim


class Plan(NamedTuple):
    """What is to be done for a workload in one region, in this order. A plan without actions is a plan: of nothing.

    Where a plan has actions of one kind on several attempts, these are sorted by key.
    """

    workload: WorkloadId
    region: RegionId
    actions: tuple[Action, ...]
    score: Score

    @property
    def start(self) -> Start:
        """How the plan's own workload starts; nowhere when it does not."""
        for action in self.actions:
            if isinstance(action, Start):
                return action
        return NO_START

    @property
    def placements(self) -> tuple[TaskPlacement, ...]:
        """Where the plan's own workload starts; empty when it does not."""
        return self.start.placements

    @property
    def cells(self) -> CellsOfJobs:
        """The cells of a virtual cluster that the plan's own workload uses."""
        return self.start.cells

    @property
    def evictions(self) -> tuple[AttemptKey, ...]:
        """The attempts that the plan preempts."""
        return tuple([action.victim for action in self.actions if isinstance(action, Evict)])

    @property
    def own_cells(self) -> tuple[AttemptKey, ...]:
        """Those of them that use the workload's own cells opportunistically."""
        return tuple([action.victim for action in self.actions if isinstance(action, Evict) and action.own_cells])


EVICTS_NOTHING, SCALES_IN, PREEMPTS = range(3)
"""The classes of `Score.reclaim_class`."""


def reclaim_class(actions: Iterable[Action]) -> int:
    """What a plan takes from others to make room: nothing, flexible tasks only, or whole attempts."""
    worst = EVICTS_NOTHING
    for action in actions:
        if isinstance(action, Evict):
            return PREEMPTS
        if isinstance(action, ScaleIn):
            worst = SCALES_IN
    return worst


class PlanExecution(Protocol):
    """What carries actions out: one method for each kind."""

    def start(self, action: Start) -> None: ...

    def evict(self, action: Evict) -> None: ...

    def downgrade(self, action: Downgrade) -> None: ...

    def restore(self, action: Restore) -> None: ...

    def scale_in(self, action: ScaleIn) -> None: ...

    def scale_out(self, action: ScaleOut) -> None: ...

    def retune(self, action: Retune) -> None: ...

    def migrate(self, action: Migrate) -> None: ...

    def reclaim(self, action: Reclaim) -> None: ...


def execute(actions: Iterable[Action], execution: PlanExecution) -> None:
    """Carries the actions out, one after the other."""
    for action in actions:
        match action:
            case Start():
                execution.start(action)
            case Evict():
                execution.evict(action)
            case Downgrade():
                execution.downgrade(action)
            case Restore():
                execution.restore(action)
            case ScaleIn():
                execution.scale_in(action)
            case ScaleOut():
                execution.scale_out(action)
            case Retune():
                execution.retune(action)
            case Migrate():
                execution.migrate(action)
            case Reclaim():
                execution.reclaim(action)
            case _:
                assert_never(action)
