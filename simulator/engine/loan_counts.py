"""What reclaims of a run came to: how many there were, how much went back, and what was vacated beside it (Lyra §7.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from domain.identifiers import MachineId
from domain.plan import Reclaim
from regional_scheduler.loaning import LoanAction
from regional_scheduler.reclaiming.policy import MachineOnLoan


@dataclass(slots=True)
class LoanCounts:
    """Counted as reclaims are decided."""

    reclaims: int = 0
    """How often machines were asked back."""
    machines: int = 0
    """How many in all."""
    machines_without_evictions: int = 0
    """Those of them that were idle, or on which nothing but flexible tasks was."""
    gpus: int = 0
    """That the machines have."""
    vacated_gpus: int = 0
    """That victims held on other machines, those beside them that stay on loan or are no part of a loan: collateral damage."""
    short_machines: int = 0
    """How many machines inference wanted back that were not on loan, summed up over its looks."""

    def add(
        self, actions: Iterable[LoanAction], on_loan: Sequence[MachineOnLoan], gpus: Mapping[MachineId, int]
    ) -> None:
        """These actions were decided; `on_loan` is what the choice was among."""
        there = {machine.machine: machine for machine in on_loan}
        for action in actions:
            if not isinstance(action, Reclaim):
                continue
            self.reclaims += 1
            chosen = [there[machine] for machine in action.machines]
            self.machines += len(chosen)
            self.machines_without_evictions += sum(not machine.evicted for machine in chosen)
            self.gpus += sum(gpus[machine.machine] for machine in chosen)
            held = {one.key: one.gpus + one.gpus_elsewhere for machine in chosen for one in machine.evicted}
            given = sum(one.gpus for machine in chosen for one in machine.evicted)
            self.vacated_gpus += sum(held.values()) - given
