"""Whom a walk along the queue need not ask: kinds for which no region has room, and single workloads that it has asked.

The service keeps the same in its database (`services.database.refusal_store`; decision 062). A region objects to a refusal as
soon as it may have room again (`regional_scheduler.refusals.refused_kinds`, the service's own).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from domain.identifiers import TenantId
from domain.rank import Standing
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.refusals.kinds import WorkloadKind
from regional_scheduler.refusals.refused_kinds import KindKey, RefusedKind, RefusedKinds
from simulator.engine.columns import Integers
from simulator.engine.ranked_places import standing_number

_NOTHING_REFUSED = np.iinfo(np.int64).max
_ALL_PLANS = 1 << 60
"""A region looks at everything that it may have room for at once: no look is cut short."""
_NEVER_CHANGES = 0
"""Where tables or hardware of a workload change, it is of another kind."""


def key_of(kind: int, *, within_quota: bool) -> KindKey:
    """Tenants that matter are in the kinds of a simulation."""
    return KindKey(WorkloadKind(str(kind)), TenantId(""), within_quota)


@dataclass(slots=True)
class _Refusal:
    """No region had room for one of this kind."""

    place: int
    """Twice the kind, and the side of the quota."""
    standing: Standing
    walk: int
    """In which it was refused, ..."""
    round_number: int
    """... and in which round."""
    holds: bool = True
    """No region has objected."""
    has_room: bool = False
    """A region has a plan for one of it."""


class PassedOver:
    """What is known, and what each region has to say against it."""

    def __init__(self, bidders: Sequence[RegionBidder], workloads: int) -> None:
        """`bidders` of all regions, in the order in which they are asked; `workloads` are all that may ever be asked."""
        self._regions = [(bidder, RefusedKinds()) for bidder in bidders]
        self._refusals: dict[KindKey, _Refusal] = {}
        self.asked_in_walk: Integers = np.zeros(workloads, np.int64)
        """By workload index, the last walk in which it was refused and that said nothing of others of its kind."""

    @property
    def has_room(self) -> bool:
        """Whether some region has room again for what was refused."""
        return any(refusal.has_room for refusal in self._refusals.values())

    def begin_walk(self) -> None:
        """What may find room again is asked like what is new."""
        self._refusals = {key: refusal for key, refusal in self._refusals.items() if refusal.holds}

    def refused(self, kinds: int, walk: int, *, again: bool) -> Integers:
        """The standings from which on this walk passes workloads over, as numbers, by twice the kind and side of the quota.

        `again`: not those kinds that it has asked and for which some region has room by now.
        """
        standings = np.full(2 * kinds, _NOTHING_REFUSED, np.int64)
        for refusal in self._refusals.values():
            if refusal.holds or (refusal.walk == walk and not (again and refusal.has_room)):
                standings[refusal.place] = standing_number(refusal.standing)
        return standings

    def store(self, refused: Sequence[tuple[int, RefusedKind]], walk: int) -> None:
        """These, with their kinds, were refused in a round of this walk. The first of each counts: it stands best."""
        first: dict[KindKey, RefusedKind] = {}
        for kind, one in refused:
            if one.key not in first:
                first[one.key] = one
                place = 2 * kind + one.key.within_quota
                self._refusals[one.key] = _Refusal(place, one.position.standing, walk, one.round_number)
        for _, kinds in self._regions:
            kinds.add(first.values())

    def take_objections(self, now: float) -> None:
        """Every region looks whether it has room again for what was refused, if anything there was released since."""
        for bidder, kinds in self._regions:
            if not kinds.to_check(bidder, _NEVER_CHANGES):
                continue
            for objection in kinds.objections(bidder, _NEVER_CHANGES, now, _ALL_PLANS):
                refusal = self._refusals.get(objection.refused.key)
                # In a round since then the region took part.
                if refusal is not None and refusal.round_number == objection.refused.round_number:
                    refusal.holds = False
                    refusal.has_room |= objection.has_room

    def keep_only(self, kinds: Collection[int]) -> None:
        """Of all others none is queued."""
        self._refusals = {key: one for key, one in self._refusals.items() if one.place // 2 in kinds}
        for _, known in self._regions:
            known.keep_only(self._refusals)
