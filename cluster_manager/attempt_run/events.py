"""What can happen to an attempt. Values: each says when (`at_s`) and what the machine has to know of it.

What clusters report has to hold for all of a gang: its driver waits until every cluster has reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from domain.events import EvictionCause, JsonValue
from domain.identifiers import AttemptNumber, MachineId, WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from domain.plan import TaskName
from domain.rank import Standing


class Eviction(NamedTuple):
    """Why a live attempt has to leave; when preempted, for which attempt, and how that one stood."""

    cause: EvictionCause
    by: AttemptKey | None = None
    by_standing: Standing | None = None
    to: tuple[MachineId, ...] = ()
    """When it migrates: the machines that are kept for its successor."""
    own_cells: bool = False
    """The attempt that it makes room for owns the cells that it uses opportunistically: nothing bounds that."""
    overdue: bool = False
    """The machine should be back with inference already: there is no more time to save anything."""
    room_for: WorkloadId | None = None
    """When it migrates for another workload's sake: which one waits for its place."""
    limit_s: float | None = None
    """When its time limit is reached: how long it was allowed to run."""
    asked_by: str | None = None
    """When its user sends it back to the queue: who says so."""

    def as_json(self) -> dict[str, JsonValue]:
        """As details of an event, and as it is stored."""
        document: dict[str, JsonValue] = {"cause": self.cause.value}
        if self.by is not None and self.by_standing is not None:
            document["by"] = self.by.workload
            document["by_attempt"] = self.by.attempt
            document["by_priority"] = self.by_standing.priority
            document["by_level"] = self.by_standing.level
            if self.own_cells:
                document["own_cells"] = True
        if self.overdue:
            document["overdue"] = True
        if self.to:
            document["to"] = list(self.to)
        if self.room_for is not None:
            document["room_for"] = self.room_for
        if self.limit_s is not None:
            document["limit_s"] = self.limit_s
        if self.asked_by is not None:
            document["asked_by"] = self.asked_by
        return document

    @staticmethod
    def from_json(document: Mapping[str, object]) -> Eviction:
        """What `as_json` made. Raises KeyError or ValueError for anything else."""
        cause = EvictionCause(str(document["cause"]))
        if "by" not in document:
            to = document.get("to", ())
            machines = tuple(MachineId(str(name)) for name in to) if isinstance(to, list) else ()
            room_for, limit_s, asked_by = (document.get(name) for name in ("room_for", "limit_s", "asked_by"))
            return Eviction(
                cause,
                to=machines,
                overdue=document.get("overdue") is True,
                room_for=None if room_for is None else WorkloadId(str(room_for)),
                limit_s=None if limit_s is None else float(str(limit_s)),
                asked_by=None if asked_by is None else str(asked_by),
            )
        return Eviction(
            cause,
            AttemptKey(WorkloadId(str(document["by"])), AttemptNumber(int(str(document["by_attempt"])))),
            Standing(int(str(document["by_priority"])), int(str(document["by_level"]))),
            own_cells=document.get("own_cells") is True,
        )


# What the region decides.


class PlaceFreed(NamedTuple):
    """Everything that was to leave its machines has left: its containers can be started."""

    at_s: float


class LeaveAsked(NamedTuple):
    """It has to make room, or is drained, reclaimed or cancelled, or its time is over: it saves its work and stops."""

    at_s: float
    eviction: Eviction


class MachineLost(NamedTuple):
    """A machine under it is gone, and with it what was not saved: it stops at once."""

    at_s: float


class GraceOver(NamedTuple):
    """It is leaving, and a machine under it should be back with inference already: it has no more time to save anything."""

    at_s: float


class CancellationNoted(NamedTuple):
    """The user wants the workload no more: however the attempt ends, unless completed, it does not run again."""

    at_s: float


class Resized(NamedTuple):
    """It holds these placements from now on (more or fewer tasks, or other CPUs and memory)."""

    at_s: float
    placements: tuple[TaskPlacement, ...]


# What its clusters report together.


class Started(NamedTuple):
    """All its base tasks run since then, from where the checkpoint that they restored left off."""

    at_s: float


class Progressed(NamedTuple):
    """How far it is, and what of that is saved."""

    at_s: float
    progress: float
    checkpoint_progress: float
    throughput: float = 0.0


class CheckpointSaved(NamedTuple):
    """The whole of it can go on from there if it ends now."""

    at_s: float
    progress: float


class TaskFailed(NamedTuple):
    """One of its tasks ended badly by itself: the others have to stop."""

    at_s: float


class TaskLost(NamedTuple):
    """What watched over some of its tasks is gone, and the machine (as far as is known) is not."""

    at_s: float


class FlexibleTasksLost(NamedTuple):
    """Flexible tasks of it were killed or are gone with their machine: the others can go on without them (Lyra §5.2)."""

    at_s: float
    tasks: tuple[TaskName, ...]


class Completed(NamedTuple):
    """All its tasks ended well. What was reached and saved before that counts too."""

    at_s: float
    progress: float = 0.0
    checkpoint_progress: float = 0.0
    reason: str = ""


class Gone(NamedTuple):
    """Nothing of it runs any more, and it has not completed. What was reached and saved before that counts too."""

    at_s: float
    progress: float = 0.0
    checkpoint_progress: float = 0.0
    reason: str = ""
    exit_codes: tuple[int, ...] = ()
    """With which tasks ended that are to blame, one of each of its clusters at most; 128 and the signal of those killed."""


AttemptEvent: TypeAlias = (
    PlaceFreed
    | LeaveAsked
    | MachineLost
    | GraceOver
    | CancellationNoted
    | Resized
    | Started
    | Progressed
    | CheckpointSaved
    | TaskFailed
    | TaskLost
    | FlexibleTasksLost
    | Completed
    | Gone
)
