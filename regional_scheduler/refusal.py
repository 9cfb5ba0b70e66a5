"""Why a region has no plan for a workload: a reason to count by, and a sentence with the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from domain.identifiers import JobName


class RefusalReason(StrEnum):
    """From the most lasting to the most passing."""

    NO_MACHINE_FITS = "no_machine_fits"
    """No machine of the region could hold one task of the job, even with nothing else on it."""
    CLUSTERS_TOO_SMALL = "clusters_too_small"
    """No cluster of the region could hold all tasks of the job, even with nothing else in it."""
    NO_ROOM = "no_room"
    """The job alone finds no room in any cluster, even with everything evicted that it may evict."""
    NO_ROOM_TOGETHER = "no_room_together"
    """Each job finds room, but not all of them together."""
    KNOWN_TO_FAIL = "known_to_fail"
    """The negative cache said so; nothing was planned."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """No plan. `job` is the one that finds no room; the sentence is for people."""

    reason: RefusalReason
    job: JobName | None
    sentence: str
    room: tuple[int, ...] = ()
    """For how many of the job's tasks each cluster has room at most, in fleet order, if the job alone finds none."""
