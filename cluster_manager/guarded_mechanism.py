"""Mechanisms of packages may have errors: what one does wrong refuses a place, and is noted, and ends nothing.

Rule: where such a mechanism raises, or gives what is no answer, its cluster has no place for the job; everything else
that is asked of it has an answer that says nothing. The same question is not asked again as long as the cluster is as it
is. Topmast's own mechanisms are not guarded: an error of theirs is a defect that must not be passed over.

Invariant: what a guarded mechanism tentatively did to its cluster before it raised is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.released_capacity import ReleasedCapacity
from cluster_manager.mechanism import (
    CellChange,
    ChangesCells,
    ExplainsWaiting,
    Place,
    PlacementMechanism,
    Query,
    ReclaimsForOwners,
    Shortfall,
    WhyWaiting,
)
from domain.identifiers import ClusterId
from domain.placement import AttemptKey

MOST_REMEMBERED = 100
"""Different failures of one mechanism that are noted; what an error says may be another thing each time."""

Answer = TypeVar("Answer")


class MechanismFailure(NamedTuple):
    """What a mechanism did wrong; noted once, however often it does the same."""

    cluster: ClusterId
    mechanism: str
    asked: str
    """The method that failed."""
    error: str


class GuardedMechanism:
    """Asks another mechanism. It is asked for one cluster at a time, whatever it offers."""

    def __init__(self, name: str, guarded: PlacementMechanism, cluster: ClusterId) -> None:
        self._name = name
        self._guarded = guarded
        self._cluster = cluster
        self._noted: dict[MechanismFailure, None] = {}
        self._new: list[MechanismFailure] = []
        self.failures = 0
        """How often it has failed."""

    def take_failures(self) -> list[MechanismFailure]:
        """What went wrong since the last call, and never before."""
        new, self._new = self._new, []
        return new

    def find(self, query: Query, view: ClusterCapacity) -> Place | Shortfall:
        """See `PlacementMechanism.find`. A shortfall of all tasks is remembered by nothing."""

        def found() -> Place | Shortfall:
            answer: object = self._guarded.find(query, view)
            if not isinstance(answer, (Place, Shortfall)):
                raise TypeError(f"gave {type(answer).__name__}, which is neither a Place nor a Shortfall")
            return answer

        otherwise: Place | Shortfall = Shortfall(query.tasks)
        supposed = sum(1 for _ in view.suppositions())
        with view.tentatively():
            answer = self._ask("find", found, otherwise)
        view.end_supposing(kept=supposed)
        return answer

    def same_answer_key(self, query: Query, view: ClusterCapacity) -> Hashable:
        return self._ask("same_answer_key", lambda: _hashable(self._guarded.same_answer_key(query, view)), _asks(query))

    def refusal_scope(self, query: Query, view: ClusterCapacity) -> Hashable:
        return self._ask("refusal_scope", lambda: _hashable(self._guarded.refusal_scope(query, view)), _asks(query))

    def required_victims(self, query: Query, victims: Sequence[AttemptKey], view: ClusterCapacity) -> tuple[bool, ...]:
        nothing = (False,) * len(victims)
        return self._ask("required_victims", lambda: self._guarded.required_victims(query, victims, view), nothing)

    def capacity_after(self, query: Query, capacity: int, released: ReleasedCapacity) -> int:
        return self._ask("capacity_after", lambda: self._guarded.capacity_after(query, capacity, released), query.tasks)

    def _ask(self, asked: str, question: Callable[[], Answer], otherwise: Answer) -> Answer:
        try:
            return question()
        except Exception as error:  # noqa: BLE001 - whatever a package's own code raises
            self.failures += 1
            failure = MechanismFailure(self._cluster, self._name, asked, f"{type(error).__name__}: {error}")
            if failure not in self._noted and len(self._noted) < MOST_REMEMBERED:
                self._noted[failure] = None
                self._new.append(failure)
            return otherwise


class _Reclaiming(GuardedMechanism):
    def reclaims(self, query: Query) -> bool:
        guarded = self._guarded
        return self._ask("reclaims", lambda: isinstance(guarded, ReclaimsForOwners) and guarded.reclaims(query), True)


class _Changing(GuardedMechanism):
    def cell_changes(self, view: ClusterCapacity) -> Sequence[CellChange]:
        guarded = self._guarded
        return self._ask(
            "cell_changes", lambda: guarded.cell_changes(view) if isinstance(guarded, ChangesCells) else (), ()
        )

    def bound_anew(self, view: ClusterCapacity) -> Sequence[CellChange]:
        guarded = self._guarded
        return self._ask(
            "bound_anew", lambda: guarded.bound_anew(view) if isinstance(guarded, ChangesCells) else (), ()
        )


class _Explaining(GuardedMechanism):
    def why_waiting(self, query: Query, view: ClusterCapacity) -> WhyWaiting | None:
        guarded = self._guarded
        return self._ask(
            "why_waiting",
            lambda: guarded.why_waiting(query, view) if isinstance(guarded, ExplainsWaiting) else None,
            None,
        )


def guarded(name: str, mechanism: PlacementMechanism, cluster: ClusterId) -> GuardedMechanism:
    """The mechanism of that name, guarded; it offers besides what the mechanism itself does, but for several clusters."""
    offers: list[type[GuardedMechanism]] = []
    if isinstance(mechanism, ReclaimsForOwners):
        offers.append(_Reclaiming)
    if isinstance(mechanism, ChangesCells):
        offers.append(_Changing)
    if isinstance(mechanism, ExplainsWaiting):
        offers.append(_Explaining)
    kind = type("GuardedMechanism", tuple(offers), {}) if offers else GuardedMechanism
    made: GuardedMechanism = kind(name, mechanism, cluster)
    return made


def _asks(query: Query) -> Hashable:
    """All of a query but its time."""
    return query.kind.number, *query[1:4], *query[5:]


def _hashable(key: Hashable) -> Hashable:
    hash(key)
    return key
