"""What becomes of a workload when its user holds, releases, requeues or changes it: one decision for each, from where it is.

Rule: what waits can be held and changed; what runs is left alone unless its user says that it is to be stopped; what has ended
stays ended, and is submitted anew under another name. Asked again for what is so already, nothing is done, so that a call may
be repeated. Every refusal says how the workload is, and what to do instead (decision 088).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from domain.identifiers import RegionId, WorkloadId
from domain.life_cycle import ENDED, LIVE, State
from domain.workload import WorkloadSpecification

HELD_AS_SUBMITTED = "its user, as submitted"


class Outcome(StrEnum):
    """What is done about a request."""

    NOTHING = "nothing"
    """It is so already, or is about to be."""
    LEAVES_QUEUE = "leaves_queue"
    ENTERS_QUEUE = "enters_queue"
    STOPPED = "stopped"
    """It is stopped with its grace, and returns to the queue."""
    GOES_ON_WAITING = "goes_on_waiting"
    """It is not held any more, and waits for other workloads yet."""
    SUBMITTED_ANEW = "submitted_anew"


class RequestRefused(Exception):
    """It cannot be done with this workload. `sentence` says why, and what can be done."""

    def __init__(self, workload: WorkloadId, sentence: str) -> None:
        self.workload = workload
        self.sentence = f"workload {workload} {sentence}"
        super().__init__(self.sentence)


@dataclass(frozen=True, slots=True)
class WorkloadToday:
    """Where a workload is when its user asks for something."""

    workload: WorkloadId
    state: State
    held: bool = False
    cancel_requested: bool = False
    requeue_requested: bool = False
    waits: bool = False
    """For other workloads: it stays outside the queue, also when nobody holds it."""


def hold(today: WorkloadToday, *, requeue: bool) -> Outcome:
    """Whether it leaves the queue or, where that is wanted, is stopped first. Raises RequestRefused."""
    _require_wanted(today, "there is nothing to hold")
    if today.held and (today.state not in LIVE or today.requeue_requested):
        return Outcome.NOTHING
    if today.state not in LIVE:
        return Outcome.LEAVES_QUEUE
    if not requeue:
        raise RequestRefused(
            today.workload,
            f"is {today.state}: to hold leaves alone what runs; hold it with --requeue, and it is stopped and held",
        )
    return Outcome.STOPPED


def release(today: WorkloadToday) -> Outcome:
    """Whether it comes back into the queue; one that is still being stopped does so by itself. Raises RequestRefused."""
    _require_wanted(today, "there is nothing to release")
    if today.waits and today.state not in LIVE:
        if not today.held:
            raise RequestRefused(
                today.workload,
                "is not held: it waits for other workloads, which a release does not pass over; cancel it, and submit it"
                " without them",
            )
        return Outcome.GOES_ON_WAITING
    return Outcome.ENTERS_QUEUE if today.held and today.state not in LIVE else Outcome.NOTHING


def requeue(today: WorkloadToday) -> Outcome:
    """Whether it is stopped, or submitted anew because it has ended. Raises RequestRefused."""
    if today.state in ENDED:
        return Outcome.SUBMITTED_ANEW
    _require_wanted(today, "")
    if today.state in LIVE and not today.requeue_requested:
        return Outcome.STOPPED
    return Outcome.NOTHING


@dataclass(frozen=True, slots=True)
class SpecificationChange:
    """What is to be different; None and nothing: it stays as it is."""

    priority: int | None = None
    own_priority: bool = False
    """It asks for no priority any more: it has that of its tenant."""
    regions: tuple[RegionId, ...] | None = None
    labels: tuple[tuple[str, str], ...] = ()
    without_labels: frozenset[str] = frozenset()
    max_time_s: float | None = None
    """0: no limit any more."""
    priority_class: str | None = None

    @property
    def touches_its_place(self) -> bool:
        """Whether it changes where, or when, the workload may run: not while it does."""
        return (
            self.priority is not None
            or self.own_priority
            or self.regions is not None
            or self.priority_class is not None
        )


def changed(
    today: WorkloadToday, specification: WorkloadSpecification, change: SpecificationChange
) -> WorkloadSpecification:
    """The specification from now on. Raises RequestRefused; what is in it is to be checked as in a submission."""
    _require_wanted(today, "it is not changed any more")
    if today.state in LIVE and change.touches_its_place:
        raise RequestRefused(
            today.workload,
            f"is {today.state}: of what runs only labels and the time limit can be changed; requeue it first",
        )
    labels = {**dict(specification.labels), **dict(change.labels)}
    max_time_s = specification.max_time_s if change.max_time_s is None else change.max_time_s or None
    priority = specification.priority if change.priority is None else change.priority
    return replace(
        specification,
        priority=None if change.own_priority else priority,
        regions=specification.regions if change.regions is None else change.regions,
        labels=tuple(sorted((key, value) for key, value in labels.items() if key not in change.without_labels)),
        max_time_s=max_time_s,
        priority_class=specification.priority_class if change.priority_class is None else change.priority_class,
    )


def _require_wanted(today: WorkloadToday, nothing: str) -> None:
    """Raises RequestRefused for what has ended, or is about to."""
    if today.state in ENDED:
        raise RequestRefused(
            today.workload, f"has ended, {today.state}: {nothing}; requeue submits it anew, under another name"
        )
    if today.cancel_requested:
        raise RequestRefused(today.workload, "is being cancelled; wait until it has ended, and requeue it then")
