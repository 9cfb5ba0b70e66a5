"""What Topmast knows of a workload: its state, its attempts, where its tasks are, its place in the queue.

Times are seconds since the epoch on the clock of the service; None means not yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from topmast.diagnoses import Diagnosis, RegionDiagnosis, diagnosis_from_proto, region_diagnosis_from_proto
from topmast.notifications import NotificationStatus, notification_status_from_proto
from topmast.specifications import WorkloadSpecification, specification_from_proto
from topmast.v1 import global_scheduler_pb2, workload_pb2


class WorkloadState(StrEnum):
    UNSPECIFIED = "UNSPECIFIED"
    """A state that this version of the client does not know."""
    PENDING = "PENDING"
    WAITING = "WAITING"
    """No region could place it in this pass."""
    AWAITING_DATA = "AWAITING_DATA"
    """No region that may host it holds its tables."""
    DISPATCHED = "DISPATCHED"
    RUNNING = "RUNNING"
    PREEMPTING = "PREEMPTING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        """True when nothing will happen to the workload any more."""
        return self in {WorkloadState.COMPLETED, WorkloadState.FAILED, WorkloadState.CANCELLED}

    @property
    def number(self) -> workload_pb2.WorkloadState.ValueType:
        """The state in a message."""
        return workload_pb2.WorkloadState.Value(f"WORKLOAD_STATE_{self.value}")


_STATES = {int(state.number): state for state in WorkloadState}


def state_from_proto(number: int) -> WorkloadState:
    return _STATES.get(number, WorkloadState.UNSPECIFIED)


@dataclass(frozen=True, slots=True)
class Submission:
    """A workload was accepted; `existed` when it had been before, under the same idempotency key."""

    workload: str
    existed: bool
    remarks: tuple[str, ...] = ()
    """What was asked for and is not done as the service is configured, in sentences."""


@dataclass(frozen=True, slots=True)
class AwaitedWorkload:
    """Another workload for which one waits; `condition` is "ok" (completed), "failed" or "any" (ended)."""

    condition: str
    workload: str
    name: str
    state: WorkloadState


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """One task on one machine, with what it holds."""

    job: str
    task: int
    cluster: str
    machine: str
    gpu_indices: tuple[int, ...]
    cpus: float
    memory_gib: float


def placement_from_proto(placement: workload_pb2.TaskPlacement) -> TaskPlacement:
    return TaskPlacement(
        placement.job,
        placement.task,
        placement.cluster,
        placement.machine,
        tuple(placement.gpu_indices),
        placement.cpus,
        placement.memory_gib,
    )


@dataclass(frozen=True, slots=True)
class JobCells:
    """The cells of a virtual cluster that a job uses: `levels` those of the owned cells that its tasks stand in.

    `downgraded`: it has lost them for now and goes on opportunistically where it is.
    """

    job: str
    virtual_cluster: str
    hierarchy: str
    pinned_cell: str
    levels: tuple[str, ...]
    downgraded: bool


@dataclass(frozen=True, slots=True)
class JobTuning:
    """What a job holds of CPUs and memory for each GPU (the least of its tasks), beside its proportional share of its machines.

    `tuning` names what shares these out; "": nothing does, for it said itself how much it wants or has no sensitivity profile.
    `profile` is a model or the fingerprint of the job; "": none. `speed` is how many times as fast it is as with its share.
    """

    job: str
    cpus_per_gpu: float
    memory_gib_per_gpu: float
    share_cpus_per_gpu: float
    share_memory_gib_per_gpu: float
    tuning: str
    profile: str
    speed: float


@dataclass(frozen=True, slots=True)
class Preemptor:
    """The workload for which another one had to make room; one of another tenant has no name here ("")."""

    workload: str
    name: str
    priority: int
    level: int

    @property
    def words(self) -> str:
        """w-12 (resnet), priority 1; or: a workload of another tenant, priority 1."""
        who = f"{self.workload} ({self.name})" if self.workload else "a workload of another tenant"
        return f"{who}, priority {self.priority}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a workload. `end` is completed, failed, cancelled, or the cause of its eviction; "" while it runs.

    Progress is in the workload's own unit: seconds of work when emulated, steps otherwise.
    """

    attempt: int
    region: str
    dispatched_s: float
    started_s: float | None
    ended_s: float | None
    within_quota: bool
    priority: int
    level: int
    placements: tuple[TaskPlacement, ...]
    end: str
    end_reason: str
    progress_at_start: float
    progress: float
    checkpoint_progress: float
    guaranteed: bool = False
    """Whether it was within its tenant's quota when it was dispatched; `within_quota` may have changed since."""
    cells: tuple[JobCells, ...] = ()
    """Of its jobs that use cells of a virtual cluster."""
    tunings: tuple[JobTuning, ...] = ()
    """While it is live: of its jobs with GPUs."""
    preempted_by: Preemptor | None = None
    """For what it made room, or is making room."""
    exit_code: int | None = None
    """Of the task that is to blame where it failed (128 and the signal if one killed it); None: there is none."""

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters that run a part of it, sorted."""
        return tuple(sorted({placement.cluster for placement in self.placements}))


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """Where a queued workload stands: `rank` 1 is the head of the queue, None not ranked yet."""

    priority: int
    level: int
    credit: float
    within_quota: bool
    rank: int | None
    reason: str
    diagnosis: Diagnosis | None
    """Why the last auction refused it; None: none has."""
    next_try_s: float | None = None
    """After a failure: when it is tried again; until then it stands where its last attempt stood. None: it need not wait."""


@dataclass(frozen=True, slots=True)
class Consolidation:
    """Whether a job is placed on as few machines as possible, by what is known now; `sentence` says why."""

    job: str
    consolidate: bool
    reason: str
    """asked, above_packlimit, not_above_packlimit or unknown_skew."""
    skew: float | None
    """Largest tensor over the whole model, from 0 to 1; None: not known."""
    skew_source: str
    """declared, reported or of_its_name; "" where it is not known."""
    packlimit: float
    """Jobs of a greater skew are consolidated."""
    sentence: str


@dataclass(frozen=True, slots=True)
class ArrayElements:
    """How the elements of an array are; what is queued counts as pending."""

    size: int
    at_most: int | None
    """At most so many are in the queue or running at once; None: all may be."""
    states: Mapping[WorkloadState, int]
    awaiting_turn: int
    """Of those that are pending: how many wait for their turn, and are not in the queue yet."""
    failed: tuple[int, ...]
    """The indices of the first that failed, at most 20."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload as it is now. `attempts` come with `get` and `watch` only; `reason` says why it is in its state."""

    workload: str
    specification: WorkloadSpecification
    state: WorkloadState
    submitted_s: float
    ended_s: float | None
    region: str
    progress: float
    checkpoint_progress: float
    throughput: float
    failures: int
    reason: str
    cancel_requested: bool
    queue_position: QueuePosition | None
    attempts: tuple[Attempt, ...]
    consolidations: tuple[Consolidation, ...] = ()
    """As `attempts`; of every job of several tasks with GPUs."""
    region_diagnoses: tuple[RegionDiagnosis, ...] = ()
    """With `get` only, while it is queued and the last auction refused it: what each region says, by name."""
    remarks: tuple[str, ...] = ()
    """As `attempts`; what was asked for and is not done as the service is configured, in sentences."""
    held_by: str = ""
    """Who holds it; "": nobody. While it is live: it is held when it is back in the queue."""
    requeue_requested: bool = False
    """It is being stopped because its user sends it back to the queue."""
    revision: int = 0
    """Grows with each change of what was submitted; 0: there was none."""
    waits_for: tuple[AwaitedWorkload, ...] = ()
    """The others for which it waits at present, by its `specification.after`."""
    array: str = ""
    """The array that it is an element of, or is itself; "": none."""
    array_index: int | None = None
    """Of an element."""
    elements: ArrayElements | None = None
    """Of an array as a whole: it stands for all its elements, and has no attempts of its own."""
    notification: NotificationStatus | None = None
    """As `attempts`, where somebody is told of what happens to it: how that goes."""

    @property
    def name(self) -> str:
        return self.specification.name

    @property
    def tenant(self) -> str:
        return self.specification.tenant


def workload_from_proto(message: workload_pb2.Workload) -> Workload:
    return Workload(
        workload=message.workload,
        specification=specification_from_proto(message.specification),
        state=state_from_proto(message.state),
        submitted_s=message.submitted_s,
        ended_s=message.ended_s or None,
        region=message.region,
        progress=message.progress,
        checkpoint_progress=message.checkpoint_progress,
        throughput=message.throughput,
        failures=message.failures,
        reason=message.reason,
        cancel_requested=message.cancel_requested,
        queue_position=position_from_proto(message.queue_position) if message.HasField("queue_position") else None,
        attempts=tuple(_attempt_from_proto(attempt) for attempt in message.attempts),
        consolidations=tuple(
            Consolidation(
                one.job,
                one.consolidate,
                one.reason,
                one.skew if one.HasField("skew") else None,
                one.skew_source,
                one.packlimit,
                one.sentence,
            )
            for one in message.consolidations
        ),
        region_diagnoses=tuple(region_diagnosis_from_proto(one) for one in message.region_diagnoses),
        remarks=tuple(message.remarks),
        held_by=message.held_by,
        requeue_requested=message.requeue_requested,
        revision=message.revision,
        waits_for=tuple(
            AwaitedWorkload(one.condition, one.workload, one.name, state_from_proto(one.state))
            for one in message.waits_for
        ),
        array=message.array,
        array_index=message.array_index if message.HasField("array_index") else None,
        elements=_elements_from_proto(message.elements) if message.HasField("elements") else None,
        notification=notification_status_from_proto(message.notification) if message.HasField("notification") else None,
    )


def _elements_from_proto(message: workload_pb2.ArrayElements) -> ArrayElements:
    return ArrayElements(
        size=message.size,
        at_most=message.at_most or None,
        states={state_from_proto(one.state): one.elements for one in message.states},
        awaiting_turn=message.awaiting_turn,
        failed=tuple(message.failed),
    )


def position_from_proto(message: workload_pb2.QueuePosition) -> QueuePosition:
    return QueuePosition(
        message.priority,
        message.level,
        message.credit,
        message.within_quota,
        message.rank or None,
        message.reason,
        diagnosis_from_proto(message.diagnosis) if message.HasField("diagnosis") else None,
        message.next_try_s or None,
    )


def _attempt_from_proto(message: workload_pb2.Attempt) -> Attempt:
    return Attempt(
        attempt=message.attempt,
        region=message.region,
        dispatched_s=message.dispatched_s,
        started_s=message.started_s or None,
        ended_s=message.ended_s or None,
        within_quota=message.within_quota,
        priority=message.priority,
        level=message.level,
        placements=tuple(placement_from_proto(placement) for placement in message.placements),
        end=message.end,
        end_reason=message.end_reason,
        progress_at_start=message.progress_at_start,
        progress=message.progress,
        checkpoint_progress=message.checkpoint_progress,
        guaranteed=message.guaranteed,
        cells=tuple(
            JobCells(
                cells.job,
                cells.virtual_cluster,
                cells.hierarchy,
                cells.pinned_cell,
                tuple(cells.levels),
                cells.downgraded,
            )
            for cells in message.cells
        ),
        tunings=tuple(
            JobTuning(
                tuning.job,
                tuning.cpus_per_gpu,
                tuning.memory_gib_per_gpu,
                tuning.share_cpus_per_gpu,
                tuning.share_memory_gib_per_gpu,
                tuning.tuning,
                tuning.profile,
                tuning.speed,
            )
            for tuning in message.tunings
        ),
        preempted_by=_preemptor_from_proto(message.preempted_by) if message.HasField("preempted_by") else None,
        exit_code=message.exit_code if message.HasField("exit_code") else None,
    )


def _preemptor_from_proto(message: workload_pb2.Preemptor) -> Preemptor:
    return Preemptor(message.workload, message.name, message.priority, message.level)


@dataclass(frozen=True, slots=True)
class WorkloadPage:
    """Some workloads, newest first; `next_page_token` is "" on the last page."""

    workloads: tuple[Workload, ...]
    next_page_token: str


def page_from_proto(message: global_scheduler_pb2.ListWorkloadsResponse) -> WorkloadPage:
    return WorkloadPage(tuple(workload_from_proto(workload) for workload in message.workloads), message.next_page_token)


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One queued workload; `gpus` are those of all its base tasks."""

    workload: str
    name: str
    tenant: str
    state: WorkloadState
    position: QueuePosition
    submitted_s: float
    gpus: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """Machines that a region keeps for a gang that has waited for too long; `gpus` are those that the gang asks for.

    It starts at `expected_start_s` if what runs there ends when it is expected to; what is not met by `expires_s` is made anew.
    """

    workload: str
    name: str
    tenant: str
    region: str
    clusters: tuple[str, ...]
    machines: tuple[str, ...]
    gpus: int
    priority: int
    level: int
    made_s: float
    expected_start_s: float
    expires_s: float


@dataclass(frozen=True, slots=True)
class Queue:
    """The head of the queue, how many are in it altogether, and which scan pass ranked them, when; and what is kept for whom,
    wherever it is in the queue."""

    entries: tuple[QueueEntry, ...]
    queued: int
    scan_pass: int
    scan_pass_s: float
    reservations: tuple[Reservation, ...] = ()
    """By the expected start."""


def queue_from_proto(message: global_scheduler_pb2.GetQueueResponse) -> Queue:
    return Queue(
        tuple(
            QueueEntry(
                entry.workload,
                entry.name,
                entry.tenant,
                state_from_proto(entry.state),
                position_from_proto(entry.position),
                entry.submitted_s,
                entry.gpus,
            )
            for entry in message.entries
        ),
        message.queued,
        message.scan_pass,
        message.scan_pass_s,
        tuple(
            Reservation(
                one.workload,
                one.name,
                one.tenant,
                one.region,
                tuple(one.clusters),
                tuple(one.machines),
                one.gpus,
                one.priority,
                one.level,
                one.made_s,
                one.expected_start_s,
                one.expires_s,
            )
            for one in message.reservations
        ),
    )
