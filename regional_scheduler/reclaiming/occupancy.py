"""What runs on machines on loan, as an inventory knows it: what a reclaiming policy is given."""

from __future__ import annotations

from collections.abc import Sequence

from domain.identifiers import MachineId
from domain.placement import AttemptKey
from regional_scheduler.reclaiming.policy import AttemptOnMachine, MachineOnLoan
from regional_scheduler.region_capacity import RegionCapacity


def machines_on_loan(inventory: RegionCapacity, machines: Sequence[MachineId]) -> tuple[MachineOnLoan, ...]:
    """These machines, in this order, each with the attempts that hold anything on it."""
    attempts: dict[MachineId, list[AttemptOnMachine]] = {machine: [] for machine in machines}
    leaving: dict[MachineId, list[AttemptKey]] = {machine: [] for machine in machines}
    for holding in inventory.holdings():
        gpus: dict[MachineId, int] = {}
        for placement in holding.placements:
            gpus[placement.machine] = gpus.get(placement.machine, 0) + len(placement.gpu_indices)
        here = [machine for machine in gpus if machine in attempts]
        if here and inventory.is_leaving(holding.key):
            for machine in here:
                leaving[machine].append(holding.key)
            continue
        for machine in here:
            attempts[machine].append(AttemptOnMachine(holding.key, gpus[machine], len(gpus)))
    return tuple(MachineOnLoan(machine, tuple(attempts[machine]), tuple(leaving[machine])) for machine in machines)
