"""I15: no eviction destroys more work than another choice: with any one victim spared, the newcomer would not fit there.

At each dispatch that evicts, what every live attempt holds, or has been given, is counted machine by machine. A victim
is needless if the newcomer's machines could give it everything with all the other victims gone and this one left.
Attempts that are leaving for others still count: their place is promised.

In a cluster that places in cells a place is its very GPUs, for those beside them may be other cells: whoever holds one
of them is no needless victim.

Only newcomers of one job are checked: jobs that share machines may need a victim although these very places do not. A
log says of a change of placements and of a migration only once they are carried out, so capacity may have been
promised that it does not show. Therefore a suspicion waits until the end of the log, and is dropped when an attempt
that was live turns out to have been given more on one of the machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from domain.fleet import Fleet
from simulator.validation.lives import AttemptLife
from simulator.validation.machines import Claim, MachineUse
from simulator.validation.report import Findings, Invariant

_Amounts: TypeAlias = tuple[int, int, int]
"""GPUs, thousandths of a CPU, MiB."""
_NOTHING: _Amounts = (0, 0, 0)


class _Suspicion(NamedTuple):
    """A victim that could have been spared, as far as the log said by then."""

    line: int
    newcomer: str
    sentence: str
    machines: frozenset[str]


class NeedlessVictims:
    """Counts what attempts hold, and looks at which attempts make room for which."""

    def __init__(self, findings: Findings, fleet: Fleet) -> None:
        self.checks = 0
        self._in_cells = frozenset(str(cluster.cluster) for cluster in fleet.clusters_with_cells())
        self._findings = findings
        self._held: dict[str, dict[str, _Amounts]] = {}
        """By machine and attempt, from the dispatch on."""
        self._suspicions: list[_Suspicion] = []

    def dispatched(
        self, newcomer: str, attempt: AttemptLife, victims: Sequence[AttemptLife], *, migrates: bool
    ) -> None:
        """The attempt is given its places; these live attempts leave for it. `migrates`: the places were kept for it."""
        asked = _by_machine(attempt.planned)
        if migrates:
            self._drop_suspicions(asked)
        if victims and len({claim.job for claim in attempt.planned}) == 1:
            machines = {claim.machine.name: claim.machine for claim in attempt.planned}
            names = {victim.name for victim in victims}
            for victim in victims:
                self.checks += 1
                if not self._holds_its_cells(victim, attempt) and all(
                    self._fits(machines[name], asked[name], names - {victim.name}) for name in machines
                ):
                    sentence = f"evicts {victim.name}, but would fit in its places with that one left where it is"
                    self._suspicions.append(_Suspicion(self._findings.line, newcomer, sentence, frozenset(machines)))
        self._hold(attempt.name, asked)

    def _holds_its_cells(self, victim: AttemptLife, newcomer: AttemptLife) -> bool:
        """Whether the victim holds any GPU that the newcomer gets in a cluster that places in cells."""
        gets = {
            (claim.machine.name, gpu)
            for claim in newcomer.planned
            if claim.machine.cluster in self._in_cells
            for gpu in claim.gpus
        }
        return any(
            (claim.machine.name, gpu) in gets for claim in (*victim.planned, *victim.claims) for gpu in claim.gpus
        )

    def changed(self, attempt: AttemptLife, before: Sequence[Claim], after: Sequence[Claim]) -> None:
        """The attempt holds other amounts, or was given other places than it was dispatched to."""
        old, new = _by_machine(before), _by_machine(after)
        grown = {name for name, amounts in new.items() if _exceeds(amounts, old.get(name, _NOTHING))}
        self._drop_suspicions(grown)
        self._let_go(attempt.name, old)
        self._hold(attempt.name, new)

    def ended(self, attempt: AttemptLife) -> None:
        """The attempt holds nothing any more."""
        self._let_go(attempt.name, _by_machine([*attempt.planned, *attempt.claims]))

    def report(self) -> None:
        """At the end of the log: what is still suspected has happened."""
        for suspicion in self._suspicions:
            self._findings.line, self._findings.workload = suspicion.line, suspicion.newcomer
            self._findings.add(Invariant.I15, suspicion.sentence)
        self._findings.line, self._findings.workload = 0, None

    def _fits(self, machine: MachineUse, asked: _Amounts, leaving: set[str]) -> bool:
        """Whether the machine could give that much with these attempts gone and all the others left."""
        gpus, millicpus, mebibytes = asked
        for name, amounts in self._held.get(machine.name, {}).items():
            if name not in leaving:
                gpus, millicpus, mebibytes = gpus + amounts[0], millicpus + amounts[1], mebibytes + amounts[2]
        return gpus <= machine.gpus and millicpus <= machine.millicpus and mebibytes <= machine.mebibytes

    def _hold(self, attempt: str, amounts: Mapping[str, _Amounts]) -> None:
        for machine, held in amounts.items():
            self._held.setdefault(machine, {})[attempt] = held

    def _let_go(self, attempt: str, amounts: Mapping[str, _Amounts]) -> None:
        for machine in amounts:
            self._held.get(machine, {}).pop(attempt, None)

    def _drop_suspicions(self, machines: set[str] | Mapping[str, _Amounts]) -> None:
        self._suspicions = [one for one in self._suspicions if one.machines.isdisjoint(machines)]


def _by_machine(claims: Sequence[Claim]) -> dict[str, _Amounts]:
    """What the claims come to on each machine."""
    found: dict[str, _Amounts] = {}
    for claim in claims:
        gpus, millicpus, mebibytes = found.get(claim.machine.name, _NOTHING)
        found[claim.machine.name] = (gpus + len(claim.gpus), millicpus + claim.millicpus, mebibytes + claim.mebibytes)
    return found


def _exceeds(amounts: _Amounts, others: _Amounts) -> bool:
    return any(mine > other for mine, other in zip(amounts, others, strict=True))
