"""What has to be done about an attempt. Values: service and simulator each carry them out in their own way."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from cluster_manager.attempt_run.events import Eviction
from domain.events import EvictionCause
from domain.life_cycle import State
from domain.placement import AttemptKey, TaskPlacement
from domain.plan import TaskName


class SetUp(NamedTuple):
    """Start its containers; they restore the checkpoint at `progress` (0: there is none)."""

    key: AttemptKey
    progress: float


class RecordStart(NamedTuple):
    """It runs since then."""

    key: AttemptKey
    started_s: float


class RecordProgress(NamedTuple):
    """How far it is: worth keeping, not worth telling."""

    key: AttemptKey
    progress: float
    checkpoint_progress: float
    throughput: float


class RecordCheckpoint(NamedTuple):
    """A checkpoint of the whole attempt was heard of."""

    key: AttemptKey
    progress: float
    saved_s: float


class RecordSizes(NamedTuple):
    """It holds these placements from now on."""

    key: AttemptKey
    placements: tuple[TaskPlacement, ...]


class GoOnWithout(NamedTuple):
    """Resize it down to what it has without these tasks, which are gone."""

    key: AttemptKey
    tasks: tuple[TaskName, ...]


class RecordLeaving(NamedTuple):
    """It has to leave from now on: it makes room, and is no victim for anyone else."""

    key: AttemptKey
    eviction: Eviction


class Stop(NamedTuple):
    """Stop all its tasks."""

    key: AttemptKey
    grace_s: float
    """The time that they have to save their work; 0: at once."""


class RecordEnd(NamedTuple):
    """It is over and holds nothing any more: how it ended, and what becomes of its workload."""

    key: AttemptKey
    end: str
    """completed, failed, cancelled, or the cause of the eviction."""
    reason: str
    ended_s: float
    progress: float
    checkpoint_progress: float
    next_state: State
    """The workload's state from now on; PENDING puts it back into the queue."""
    failed: bool = False
    """It counts against the workload's retries."""
    not_before_s: float = 0.0
    exit_code: int | None = None
    """Of the task that is to blame where it failed; None: it did not, or there is none."""

    @property
    def migrates(self) -> bool:
        """Its next attempt starts at once in the place that is kept for it. One that ends in any other way, as with a
        lost machine while it saved its work, loses that place, and its workload returns to the queue like others."""
        return self.end == EvictionCause.MIGRATED and self.next_state is State.PENDING


AttemptAction: TypeAlias = (
    SetUp
    | RecordStart
    | RecordProgress
    | RecordCheckpoint
    | RecordSizes
    | GoOnWithout
    | RecordLeaving
    | Stop
    | RecordEnd
)
