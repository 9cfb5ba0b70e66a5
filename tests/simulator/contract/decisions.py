"""What a driver decides at one instant: the things in which both drivers must agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from domain.events import Event
from domain.identifiers import RegionId, WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from domain.rank import QueuePosition, Standing


@dataclass(frozen=True, slots=True)
class Reclassified:
    """A live attempt that stands elsewhere from now on."""

    key: AttemptKey
    within_quota: bool
    standing: Standing


@dataclass(frozen=True, slots=True)
class DispatchDecision:
    """A workload that is started: where, on which machines and GPUs, and its victims."""

    workload: WorkloadId
    region: RegionId
    placements: tuple[TaskPlacement, ...]
    evictions: tuple[AttemptKey, ...]


@dataclass(frozen=True, slots=True)
class Decisions:
    """A scan pass, and the auctions that are held on it."""

    reclassified: tuple[Reclassified, ...]
    queue: tuple[QueuePosition, ...]
    """From the head on, with priority, level, credit and side of the quota."""
    dispatched: tuple[DispatchDecision, ...]
    """In the order of the queue."""
    waiting: tuple[WorkloadId, ...]
    """What finds no place, in the order of the queue."""


class Driver(Protocol):
    """Takes in what happened, and decides on what is."""

    def take(self, event: Event) -> None: ...

    def decide(self, now: float) -> Decisions: ...


def ordered(placements: tuple[TaskPlacement, ...]) -> tuple[TaskPlacement, ...]:
    """By job and task: a plan may name its tasks in any order."""
    return tuple(sorted(placements, key=lambda placement: (placement.job, placement.task)))
