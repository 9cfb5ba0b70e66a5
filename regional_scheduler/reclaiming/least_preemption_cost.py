"""Least preemption cost first: how Lyra chooses the machines that go back (§4, Table 1).

Rule: a machine costs, for each attempt that would be preempted for it, the share that it is of the machines of that
attempt. The cheapest goes back, its attempts are taken from all their machines, which costs these less, and so on.
Machines that are idle or have flexible tasks only cost nothing, so that they go first (§5.3). Equal costs are decided by
collateral damage: the GPUs that are vacated on machines that cannot go back with it, on loan or not; then by the GPUs of
flexible tasks that are lost, and by the order of the fleet.
Invariant: nothing is preempted as long as machines without base tasks suffice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from domain.placement import AttemptKey
from regional_scheduler.reclaiming.policy import AttemptOnMachine, MachineOnLoan, ReclaimChoice, reclaim_of


@dataclass(frozen=True, slots=True)
class LeastPreemptionCost:
    """Needs no randomness."""

    name: str = "least_preemption_cost"

    def choose(self, on_loan: Sequence[MachineOnLoan], count: int, rng: np.random.Generator) -> ReclaimChoice:
        costs = _Costs(on_loan)
        chosen: list[int] = []
        for left in range(count, 0, -1):
            place = costs.cheapest(left)
            costs.take(place)
            chosen.append(place)
        return reclaim_of([on_loan[place] for place in sorted(chosen)])


def preemption_cost(attempts: Iterable[AttemptOnMachine]) -> float:
    """Of a machine with these attempts: the sum of the shares that it is of their machines.

    Rounded, so that equal sums of shares are equal in whatever order they are added.
    """
    return round(sum(1.0 / attempt.machines for attempt in attempts if attempt.has_base_tasks), 9)


class _Costs:
    """What each machine costs while some have been chosen and their attempts are gone."""

    def __init__(self, on_loan: Sequence[MachineOnLoan]) -> None:
        self._attempts = [{attempt.key: attempt for attempt in machine.attempts} for machine in on_loan]
        self._open = dict.fromkeys(range(len(on_loan)))
        self._places: dict[AttemptKey, list[int]] = {}
        for place, machine in enumerate(on_loan):
            for attempt in machine.attempts:
                self._places.setdefault(attempt.key, []).append(place)
        self._cost = [preemption_cost(machine.attempts) for machine in on_loan]

    def cheapest(self, left: int) -> int:
        """The place of the next machine, when so many are still to be chosen."""
        cost = self._cost
        least = min([cost[place] for place in self._open])
        tied = [place for place in self._open if cost[place] == least]
        if least == 0:
            return min(tied, key=lambda place: (self._flexible_gpus(place), place))
        return min(tied, key=lambda place: (self._collateral_gpus(place, left), self._flexible_gpus(place), place))

    def take(self, place: int) -> None:
        """The machine goes back: whom that preempts is gone from all machines, and flexible tasks from this one."""
        del self._open[place]
        for key, attempt in list(self._attempts[place].items()):
            if not attempt.has_base_tasks:
                continue
            for other in self._places[key]:
                del self._attempts[other][key]
                self._cost[other] = preemption_cost(self._attempts[other].values())

    def _flexible_gpus(self, place: int) -> int:
        return sum(attempt.gpus for attempt in self._attempts[place].values() if not attempt.has_base_tasks)

    def _collateral_gpus(self, place: int, left: int) -> int:
        """GPUs that are vacated elsewhere; without machines that are emptied by it and can go back with it, largest first."""
        preempted = {key: attempt for key, attempt in self._attempts[place].items() if attempt.has_base_tasks}
        elsewhere = sum(attempt.gpus_elsewhere for attempt in preempted.values())
        vacated: dict[int, int] = {}
        for key in preempted:
            for other in self._places[key]:
                if other != place and other in self._open:
                    vacated[other] = vacated.get(other, 0) + self._attempts[other][key].gpus
        emptied = [gpus for other, gpus in vacated.items() if self._attempts[other].keys() <= preempted.keys()]
        return elsewhere - sum(sorted(emptied, reverse=True)[: left - 1])
