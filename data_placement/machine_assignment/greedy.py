"""Machines to clusters one by one: what stands in for the mixed-integer program, and what that begins with.

Rule: first the amounts of all requests in their order, then their spares. Each takes the idlest machine that it can count
and that is missed nowhere: of a cluster that does not ask for its model, or has more than it asks for.

Invariant: no request has less of its amount than before, and none takes more than it asks for.
"""

from __future__ import annotations

from data_placement.machine_assignment.measure import tallies_of
from data_placement.machine_assignment.problem import AssignableMachine, ModelProblem
from data_placement.machine_assignment.tally import Tally, missing_spares
from domain.identifiers import ClusterId, MachineId


def assign_greedily(problem: ModelProblem) -> dict[MachineId, ClusterId]:
    """The cluster of each machine."""
    taking = _Taking(problem)
    for with_spares in (False, True):
        for request in problem.requests:
            taking.fill(request.cluster, with_spares=with_spares)
    return taking.cluster_of


class _Taking:
    """Who has what so far."""

    def __init__(self, problem: ModelProblem) -> None:
        self.cluster_of: dict[MachineId, ClusterId] = {one.machine: one.cluster for one in problem.machines}
        self._tallies = tallies_of(problem, self.cluster_of)
        self._pool_of: dict[ClusterId, list[Tally]] = {}
        for pool in problem.pools():
            tallies = [self._tallies[request.cluster] for request in pool]
            self._pool_of |= {request.cluster: tallies for request in pool}
        self._candidates = _by_turns(problem)

    def fill(self, taker: ClusterId, *, with_spares: bool) -> None:
        """Takes machines for the cluster until it has what it asks for, or nothing is left that it could have."""
        tally, pool = self._tallies[taker], self._pool_of[taker]
        for machine in self._candidates:
            if not tally.unmet and not (with_spares and missing_spares(pool)):
                return
            giver = self.cluster_of[machine.machine]
            if giver != taker and self._may_give(giver, machine, taker_is_short=tally.unmet > 0):
                self._take(machine, taker, tally, pool)

    def _may_give(self, giver: ClusterId, machine: AssignableMachine, *, taker_is_short: bool) -> bool:
        """Whether the giver loses nothing that it asks for; where an amount is not met it may lose spares."""
        tally = self._tallies.get(giver)
        if tally is None:
            return True
        pool = self._pool_of[giver]
        unmet, missing = tally.unmet, 0 if taker_is_short else missing_spares(pool)
        tally.remove(machine)
        may = tally.unmet == unmet and (taker_is_short or missing_spares(pool) <= missing)
        tally.add(machine)
        return may

    def _take(self, machine: AssignableMachine, taker: ClusterId, tally: Tally, pool: list[Tally]) -> None:
        """Moves the machine, if that brings the taker's amount, or else its spares, nearer."""
        giver = self._tallies.get(self.cluster_of[machine.machine])
        unmet, missing = tally.unmet, missing_spares(pool)
        if giver is not None:
            giver.remove(machine)
        tally.add(machine)
        if tally.unmet < unmet or (not unmet and missing_spares(pool) < missing):
            self.cluster_of[machine.machine] = taker
            return
        tally.remove(machine)
        if giver is not None:
            giver.add(machine)


def _by_turns(problem: ModelProblem) -> list[AssignableMachine]:
    """The machines, the idlest first; of equally idle ones a machine of each power domain in turn."""
    turns: dict[tuple[int, str], int] = {}
    ranked: list[tuple[int, int, str, MachineId, AssignableMachine]] = []
    for machine in sorted(problem.machines, key=lambda one: one.machine):
        domain = (machine.running, machine.power_domain)
        turn = turns[domain] = turns.get(domain, 0) + 1
        ranked.append((machine.running, turn, machine.power_domain, machine.machine, machine))
    return [machine for *_, machine in sorted(ranked, key=lambda one: one[:4])]
