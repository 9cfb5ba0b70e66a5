"""What is said in an auction round: the lots put up, and each region's answers (MAST §4.3; decision 003).

One round is open at a time for the whole fleet. It puts up a window of lots, the next workloads in queue order, and
every participating region answers all of them at once. These are values only: `bidding` makes the answers, `auction`
closes the round.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from domain.diagnosis import Diagnosis, Reason
from domain.identifiers import AttemptNumber, ClusterId, RegionId, TableId, WorkloadId
from domain.placement import AttemptKey, Score
from domain.rank import QueuePosition
from domain.workload import Workload
from regional_scheduler.idle_outline import IdleMachines
from regional_scheduler.refusals.kinds import WorkloadKind


@dataclass(frozen=True, slots=True)
class AuctionSettings:
    """How rounds are cut. A window of 1 is the paper: no workload is looked at before the one above it is decided."""

    window: int = 64
    answer_timeout_s: float = 2.0
    """How long a round waits for a participant that says nothing; after that it counts as having abandoned."""

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"window must be at least 1, not {self.window}")
        if not self.answer_timeout_s > 0.0:
            raise ValueError(f"answer_timeout_s must be positive, not {self.answer_timeout_s}")


class Lot(NamedTuple):
    """One workload put up for auction, at its place in the queue."""

    workload: Workload
    position: QueuePosition
    attempt: AttemptNumber
    """The number that the attempt will have if a region wins it: one more than the workload has had."""
    expected_winner: RegionId | None = None
    """A guess from the last round's answers. It speeds the round up and never changes what is decided."""
    preempted_s: tuple[float, ...] = ()
    """When attempts of it were asked to leave for others; needed only where it is dispatched."""
    kind: WorkloadKind | None = None
    """What it asks for, as it was submitted; None: that is not known, or of no interest."""

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.workload.workload, self.attempt)


@dataclass(frozen=True, slots=True)
class Round:
    """One round. Lots ascend in queue order; participants are sorted: the regions whose lease was live at opening."""

    number: int
    scan_pass: int
    opened_s: float
    """The instant at which every region plans its answers, so that scores of all regions mean the same."""
    deadline_s: float
    """Until when absent participants are waited for, on the clock of `close_round`."""
    participants: tuple[RegionId, ...]
    lots: tuple[Lot, ...]
    reaches_end: bool
    """True when no workload of this scan pass comes after the last lot."""
    asked: int | None = None
    """So many of the first lots are to be answered now, and can be decided; None: all of them. Of the others the regions know what
    they ask for: they can be asked on."""

    @property
    def lots_to_answer(self) -> tuple[Lot, ...]:
        return self.lots if self.asked is None else self.lots[: self.asked]

    def __post_init__(self) -> None:
        keys = [lot.position.sort_key for lot in self.lots]
        if any(earlier >= later for earlier, later in pairwise(keys)):
            raise ValueError(f"the lots of round {self.number} are not in queue order")
        if self.asked is not None and not 0 <= self.asked <= len(self.lots):
            raise ValueError(f"round {self.number} has {len(self.lots)} lots, not {self.asked}")
        if list(self.participants) != sorted(set(self.participants)):
            raise ValueError(f"the participants of round {self.number} are not sorted and unique")


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The region cannot run the workload whatever else it runs; only for NO_DATA this may change."""

    diagnosis: Diagnosis
    sentence: str

    @property
    def reason(self) -> Reason:
        return self.diagnosis.reason

    @property
    def missing_tables(self) -> tuple[TableId, ...]:
        """Only for lack of data."""
        return self.diagnosis.tables


@dataclass(frozen=True, slots=True)
class NoPlan:
    """The region could run it, but has no place for it now."""

    diagnosis: Diagnosis
    sentence: str
    assumes_wins: bool
    """Whether any earlier lot of the window was placed when it was refused."""

    @property
    def reason(self) -> Reason:
        return self.diagnosis.reason


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """What is worth knowing about a plan that may never be carried out."""

    clusters: tuple[ClusterId, ...]
    machines: int
    evictions: int


@dataclass(frozen=True, slots=True)
class Bid:
    """The region can run it now, this well."""

    score: Score
    summary: PlanSummary


Answer = Abandoned | NoPlan | Bid

REFUSED_AS_ONE = (Reason.NO_ROOM_TOGETHER, Reason.HELD_FOR_OTHERS, Reason.PLANNING_FAILED)
"""Refusals that say nothing of others that ask for the same, nor of the same workload where less is free."""


def depends_on_wins(answer: Answer) -> bool:
    """True when the answer could be another one if the region had won other lots of the window before."""
    match answer:
        case Abandoned():
            return False
        case NoPlan():
            # Wins only take capacity. So where a job found no room without any, it finds none with some. Jobs that
            # find no room together may do so because each takes the best place for itself: less may then be more. And
            # what is kept for a gang is open to others as soon as that has won.
            return answer.assumes_wins or answer.reason in REFUSED_AS_ONE
        case Bid():
            return True


@dataclass(frozen=True, slots=True)
class RegionResponse:
    """One region's answers to one round: `answers[i]` is for `lots_to_answer[i]`.

    Each lot was planned with exactly those earlier lots placed that stand in `assumed_wins` (in queue order).
    `gpus` and `cpus` are what the region has on machines that take work, `idle` the outline of what was idle before
    the first lot; they serve guesses only.
    """

    round_number: int
    region: RegionId
    answered_s: float
    answers: tuple[Answer, ...]
    assumed_wins: tuple[WorkloadId, ...]
    gpus: int
    cpus: float
    idle: tuple[IdleMachines, ...] = ()
    tenants_apart: bool = False
    """Whether it may answer otherwise to another tenant's workload that asks for the same."""
    alike: tuple[int, ...] = ()
    """By lot, the position of the first one that it answers alike with the same placed (`alike_lots`); empty: no two are."""
