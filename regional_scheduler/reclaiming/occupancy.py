"""What runs on machines on loan, as an inventory knows it: what a reclaiming policy is given."""

from __future__ import annotations

from collections.abc import Sequence

from domain.identifiers import MachineId
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.placement_changes import name_of
from regional_scheduler.reclaiming.policy import AttemptOnMachine, MachineOnLoan
from regional_scheduler.region_capacity import RegionCapacity


def machines_on_loan(inventory: RegionCapacity, machines: Sequence[MachineId]) -> tuple[MachineOnLoan, ...]:
    """These machines, in this order, each with the attempts that hold anything on it."""
    attempts: dict[MachineId, list[AttemptOnMachine]] = {machine: [] for machine in machines}
    leaving: dict[MachineId, list[AttemptKey]] = {machine: [] for machine in machines}
    for holding in inventory.holdings():
        here = [machine for machine in dict.fromkeys(p.machine for p in holding.placements) if machine in attempts]
        if not here:
            continue
        if inventory.is_leaving(holding.key):
            for machine in here:
                leaving[machine].append(holding.key)
            continue
        for machine, part in _parts(holding, here):
            attempts[machine].append(part)
    return tuple(MachineOnLoan(machine, tuple(attempts[machine]), tuple(leaving[machine])) for machine in machines)


def _parts(holding: Holding, machines: Sequence[MachineId]) -> list[tuple[MachineId, AttemptOnMachine]]:
    """What the attempt has to do with each of these machines, where it holds something."""
    flexible_tasks = set(holding.flexible)
    gpus = 0
    held: dict[MachineId, int] = dict.fromkeys(machines, 0)
    flexible: dict[MachineId, list[TaskPlacement]] = {machine: [] for machine in machines}
    base_machines: set[MachineId] = set()
    for placement in holding.placements:
        machine, count = placement.machine, len(placement.gpu_indices)
        gpus += count
        if machine in held:
            held[machine] += count
        if placement not in flexible_tasks:
            base_machines.add(machine)
        elif machine in flexible:
            flexible[machine].append(placement)
    return [
        (
            machine,
            AttemptOnMachine(
                holding.key,
                held[machine],
                len(base_machines),
                tuple(sorted(name_of(placement) for placement in flexible[machine])),
                machine in base_machines,
                gpus - held[machine],
            ),
        )
        for machine in machines
    ]
