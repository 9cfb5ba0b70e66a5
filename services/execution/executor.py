"""What every executor can do, and the values that go in and out.

An executor carries out one cluster's part of attempts. Its promises, whatever it runs them on:

- Fencing (design I8): of one workload only the newest attempt runs. An order for an older attempt is refused, an
  order for a newer one first ends the older ones.
- Every method may be repeated: a second identical call changes nothing.
- Every phase an attempt goes through is published to every reader, in order; how far it has come, less often.
- The end of an attempt is remembered until it is forgotten, and published again to each new reader.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from domain.identifiers import AttemptNumber, JobName, MachineId, WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from domain.plan import TaskName
from domain.workload import Emulated, JobSpecification, WorkloadSpecification
from services.execution.change_feed import ChangeReader
from services.execution.session_frames import SessionPurpose

if TYPE_CHECKING:
    from services.execution.session_link import SessionLink


class AttemptPhase(StrEnum):
    """How far an attempt is; the values of the proto, in lower case."""

    HELD = "held"
    """Its resources are reserved, nothing runs yet."""
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    """It ended because it was asked to."""
    LOST = "lost"
    """A machine under it, or what watched over its processes there, is gone."""


ENDED_PHASES = frozenset({AttemptPhase.COMPLETED, AttemptPhase.FAILED, AttemptPhase.STOPPED, AttemptPhase.LOST})


class JobRendezvous(NamedTuple):
    """Where the tasks of a job meet: the machine of its first task, and a port that was free there."""

    job: JobName
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class AttemptOrder:
    """What is to run here: this cluster's part of an attempt.

    `progress` is where the attempt starts from. `started_s` positive says that the attempt was running before a
    restart of the cluster manager: it is adopted if it still exists, and lost if not, never started anew.
    `revision` counts the changes of its placements since it was dispatched. Emulated work advances by `work_rate`
    seconds a second, which depends on its placements in all clusters; if it was changed it goes on from
    `changed_progress` at `changed_s`. `rendezvous` says, once it is to be started, where those jobs meet that have tasks here
    and their first one in another cluster.
    """

    key: AttemptKey
    specification: WorkloadSpecification
    placements: tuple[TaskPlacement, ...]
    hold: bool = False
    progress: float = 0.0
    started_s: float = 0.0
    revision: int = 0
    changed_s: float = 0.0
    changed_progress: float = 0.0
    work_rate: float = 1.0
    rendezvous: tuple[JobRendezvous, ...] = ()

    def jobs_here(self) -> tuple[JobSpecification, ...]:
        """The jobs with at least one task in this cluster, as specified."""
        placed = {placement.job for placement in self.placements}
        return tuple(job for job in self.specification.jobs if job.name in placed)

    @property
    def emulated(self) -> bool:
        """True when nothing of it starts a process here."""
        return all(isinstance(job.entry_point, Emulated) for job in self.jobs_here())


class JobMeasurement(NamedTuple):
    """What the tasks of a job have reported: seconds for a step, on the slowest of them, and the sizes of its model.

    0 where nothing was reported.
    """

    job: JobName
    iteration_s: float = 0.0
    largest_tensor_mib: float = 0.0
    model_mib: float = 0.0


@dataclass(frozen=True, slots=True)
class AttemptStatus:
    """How an attempt stands. `since_s` is when its phase began, `started_s` when all its tasks had started (0: not
    yet); `throughput` is progress per second as last reported; `reason` says how it ended, in a sentence.
    `revision` is the newest change of placements that is carried out in full, since `changed_s`, at `changed_progress`.
    `lost_tasks` are flexible tasks that were killed or are gone with their machine, until a change is carried out that does
    without them: what is left of the gang stands still, or waits to meet again. `rendezvous` is that of the jobs with their
    first task here and others in other clusters, from when their places are held.
    """

    key: AttemptKey
    phase: AttemptPhase
    since_s: float
    progress: float = 0.0
    checkpoint_progress: float = 0.0
    throughput: float = 0.0
    reason: str = ""
    emulated: bool = False
    started_s: float = 0.0
    revision: int = 0
    changed_s: float = 0.0
    changed_progress: float = 0.0
    measured: tuple[JobMeasurement, ...] = ()
    lost_tasks: tuple[TaskName, ...] = ()
    rendezvous: tuple[JobRendezvous, ...] = ()
    exit_code: int | None = None
    """Of the task that is to blame where it failed, 128 and the signal if it was killed by one; None: there is none."""

    @property
    def ended(self) -> bool:
        return self.phase in ENDED_PHASES


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """Whether a machine can be used, and if not, why."""

    machine: MachineId
    up: bool
    reason: str = ""


Change = AttemptStatus | MachineStatus
"""What readers get."""


class TaskReference(NamedTuple):
    """One task of one attempt: the caller, and what it shows to prove that it is."""

    key: AttemptKey
    job: JobName
    task: int
    token: str = ""


class TaskReport(NamedTuple):
    """How far a task is, how fast, and what it says of its model; 0 where it says nothing."""

    progress: float
    steps_per_second: float
    iteration_s: float = 0.0
    """Seconds that a step took on average since the first one of this attempt."""
    largest_tensor_mib: float = 0.0
    model_mib: float = 0.0


class StopAdvice(NamedTuple):
    """The answer to a heartbeat: whether to save and end, and the seconds left for it on the real clock."""

    should_stop: bool
    grace_left_s: float


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Whose output to read. Attempt 0: the newest known; `job` or `task` None: all; `tail_lines` 0: everything."""

    workload: WorkloadId
    attempt: AttemptNumber = AttemptNumber(0)
    job: JobName | None = None
    task: int | None = None
    follow: bool = False
    tail_lines: int = 0


@dataclass(frozen=True, slots=True)
class TaskLogChunk:
    """Some of what a task printed (standard output and error together), in the order in which it was printed."""

    attempt: AttemptNumber
    job: JobName
    task: int
    chunk: bytes


EMULATED = "it is emulated: there is no process"
"""Why there are no sessions."""


@dataclass(frozen=True, slots=True)
class SessionTarget:
    """The task beside which a session is wanted. Attempt 0: the newest known; `job` None: the first."""

    workload: WorkloadId
    attempt: AttemptNumber = AttemptNumber(0)
    job: JobName | None = None
    task: int = 0


class OrderRefused(Exception):
    """The executor will not do it, for the reason that the message says; nothing was changed."""

    def __init__(self, key: AttemptKey, sentence: str) -> None:
        self.key = key
        super().__init__(sentence)


class StaleOrder(OrderRefused):
    """A newer attempt of the workload has been seen, or this one has ended and was forgotten."""


class UnknownAttempt(OrderRefused):
    """No such attempt is known here."""


class ImpossibleOrder(OrderRefused):
    """The order contradicts itself or what the attempt is."""


class UnknownTask(OrderRefused):
    """The attempt has no such job or task here; `known` says which it has."""

    def __init__(self, key: AttemptKey, name: str, known: str) -> None:
        self.name = name
        self.known = known
        super().__init__(key, f"there is no {name}; {known}")


class SessionImpossible(OrderRefused):
    """There can be no session with the task as things stand, or it has ended before its command."""


class TooManySessions(OrderRefused):
    """The attempt has as many as it may have."""


class Executor(Protocol):
    """Runs this cluster's part of attempts. All methods are called on one event loop."""

    async def start(self, session_address: str) -> None:
        """Adopts what still runs and kills orphans. Tasks report to `session_address` (host:port)."""
        ...

    async def execute(self, order: AttemptOrder) -> None:
        """Takes an order and returns soon; how it goes is published.

        An order that makes no sense is taken too, and the attempt fails, saying why: so it ends. Raises StaleOrder
        when a newer attempt was seen, or this one has ended and was forgotten.
        """
        ...

    async def stop(self, key: AttemptKey, grace_s: float) -> None:
        """Asks an attempt to save a checkpoint and end within `grace_s` seconds; with 0 it is killed at once.

        A second call can only shorten the grace. An attempt that was never heard of is from now on known as stopped:
        its order, should it still come, starts nothing.
        """
        ...

    async def resize(
        self, key: AttemptKey, placements: tuple[TaskPlacement, ...], revision: int, work_rate: float = 1.0
    ) -> None:
        """Gives a running attempt other placements: flexible tasks more or fewer, other amounts of CPU and memory.
        Emulated work advances at that rate from now on. Without placements the attempt's part here is complete.

        Returns soon; that it is carried out in full is published, as the `revision` of its status. A
        revision that is not newer than the last one changes nothing. Raises UnknownAttempt, StaleOrder or
        ImpossibleOrder.
        """
        ...

    async def lose_all(self, reason: str) -> None:
        """Ends everything at once: nothing allows it to run on. What is emulated is lost."""
        ...

    async def forget(self, keys: Sequence[AttemptKey]) -> None:
        """Their ends are recorded elsewhere now. Attempts that have not ended stay known."""
        ...

    def statuses(self) -> tuple[AttemptStatus, ...]:
        """Every attempt known, as it stands now, sorted by key."""
        ...

    async def set_machines(self, machines: Sequence[MachineId]) -> None:
        """The cluster has these machines from now on. What runs is not touched; nothing is published of gone ones any more."""
        ...

    def machines(self) -> tuple[MachineStatus, ...]:
        """Every machine about which something is known, sorted by name."""
        ...

    def subscribe(self) -> ChangeReader[Change]:
        """Every change from now on; close it when done. Take `statuses()` in the same step for what was before."""
        ...

    async def heartbeat(self, task: TaskReference, report: TaskReport) -> StopAdvice:
        """A task reports how far it is. Raises StaleOrder or UnknownAttempt: then it has no business running; and ForeignSession
        before anything else, when the caller is not of that attempt."""
        ...

    async def checkpoint_saved(self, task: TaskReference, progress: float, path: str) -> None:
        """A task reports a complete checkpoint. Raises ForeignSession, StaleOrder or UnknownAttempt."""
        ...

    def read_logs(self, request: LogRequest) -> AsyncIterator[TaskLogChunk]:
        """What tasks printed. Raises UnknownAttempt when nothing is known of such an attempt."""
        ...

    def session(self, target: SessionTarget, purpose: SessionPurpose) -> AbstractAsyncContextManager[SessionLink]:
        """A command beside a task, or a connection to a port of its machine, for as long as the caller stays.

        Raises UnknownAttempt, UnknownTask, SessionImpossible or TooManySessions.
        """
        ...

    async def close(self) -> None:
        """Lets go of everything without stopping what runs: the next executor adopts it."""
        ...


def sorted_by_key(statuses: Iterable[AttemptStatus]) -> tuple[AttemptStatus, ...]:
    return tuple(sorted(statuses, key=lambda status: (status.key.workload, status.key.attempt)))


def slot_of_change(change: Change) -> tuple[object, ...]:
    """Which changes may replace each other before they are fetched: never two phases of an attempt."""
    if isinstance(change, MachineStatus):
        return (change.machine,)
    return (change.key, change.phase)
