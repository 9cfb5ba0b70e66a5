"""What one region knows of the kinds of workloads that no region had room for: it objects as soon as it may have some.

Invariant: a kind of which the region is not sure is not passed over for longer than until it has looked. What the memory of
refusals still knows is sure; what it does not is planned once.

A region also objects to what was said: when tables or hardware are there that were lacking, or are there no more, the kind is
asked again, room or not, for what it waits for decides what is done about it (copies on demand).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from domain.diagnosis import NO_HARDWARE, Diagnosis, is_nearer
from domain.identifiers import AttemptNumber, TenantId
from domain.rank import QueuePosition
from domain.workload import Workload
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.refusals.kinds import WorkloadKind
from regional_scheduler.rounds import Lot


class KindKey(NamedTuple):
    """Of whom a refusal speaks."""

    kind: WorkloadKind
    tenant: TenantId
    """Empty: it is the same for all tenants."""
    within_quota: bool


class RefusedKind(NamedTuple):
    """No region had room for such a workload, at this standing or a worse one."""

    key: KindKey
    round_number: int
    """In which it was refused."""
    workload: Workload
    """That was refused, with what it asks for."""
    position: QueuePosition
    diagnosis: Diagnosis
    """What it was told: that of the region which came closest."""
    awaits_data: bool
    """No region that could run it had its tables."""


class Objection(NamedTuple):
    """A refusal that does not hold any more, as far as this region knows."""

    refused: RefusedKind
    has_room: bool
    """It has a plan; else it is only not sure that it will refuse the next one."""
    is_outdated: bool = False
    """It has no plan, and what the kind was told is not so any more."""


class RefusedKinds:
    """Those that hold, as far as the region knows."""

    __slots__ = ("_bidder", "_kinds", "_seen", "_unchecked")

    def __init__(self) -> None:
        self._kinds: dict[KindKey, RefusedKind] = {}
        self._unchecked: dict[KindKey, None] = {}
        self._bidder: RegionBidder | None = None
        self._seen: tuple[int, Hashable] = (-1, None)
        """After how many releases, and with what revision, all of them were held against what this bidder has."""

    def __len__(self) -> int:
        return len(self._kinds)

    def keep_only(self, keys: Iterable[KindKey]) -> None:
        """All others are of no interest any more."""
        kept = {key: self._kinds[key] for key in keys if key in self._kinds}
        self._kinds = kept
        self._unchecked = {key: None for key in self._unchecked if key in kept}

    def add(self, refused: Iterable[RefusedKind]) -> None:
        """These were refused; what the region has may have changed since it answered."""
        for one in refused:
            self._kinds[one.key] = one
            self._unchecked[one.key] = None

    def to_check(self, bidder: RegionBidder, revision: Hashable) -> bool:
        """Whether any of them may not hold any more. `revision`: of what else answers depend on, such as tables."""
        if not self._kinds:
            return False
        return bool(self._unchecked) or self._bidder is not bidder or self._seen != (bidder.releases, revision)

    def objections(
        self, bidder: RegionBidder, revision: Hashable, now: float, most_plans: int
    ) -> tuple[Objection, ...]:
        """To those for which the region may have room by now; it forgets them. Makes so many plans at most: what is left
        is looked at by the next call."""
        if self._bidder is not bidder or self._seen != (bidder.releases, revision):
            self._bidder, self._seen = bidder, (bidder.releases, revision)
            self._unchecked = dict.fromkeys(self._kinds)
        objections: list[Objection] = []
        plans = 0
        for key in list(self._unchecked):
            one = self._kinds[key]
            is_outdated = _is_outdated(one, bidder)
            if not bidder.still_refuses(one.workload, one.position):
                if plans == most_plans:
                    break
                plans += 1
                has_room = bidder.plan_alone(Lot(one.workload, one.position, AttemptNumber(1)), now) is not None
                # A refusal that is not remembered says nothing of what comes.
                if has_room or is_outdated or not bidder.still_refuses(one.workload, one.position):
                    objections.append(Objection(one, has_room, is_outdated and not has_room))
                    del self._kinds[key]
            elif is_outdated:
                objections.append(Objection(one, has_room=False, is_outdated=True))
                del self._kinds[key]
            del self._unchecked[key]
        return tuple(objections)


def _is_outdated(one: RefusedKind, bidder: RegionBidder) -> bool:
    """Whether the kind would be told something else by now for what this region has: tables or hardware came, or went.

    Both are known without planning; all other reasons are those of a region that takes part.
    """
    told, abandoned = one.diagnosis, bidder.abandons(one.workload.specification)
    if abandoned is None:
        return one.awaits_data or told.reason in NO_HARDWARE
    if told.region == bidder.region:
        return told.reason is not abandoned.reason
    return is_nearer(abandoned.reason, told.reason)
