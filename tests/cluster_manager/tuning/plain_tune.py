"""Synergy-TUNE (§4.2) in plain Python, without arrays: the twin of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster_manager.tuning.demand import GpuAmounts
from cluster_manager.tuning.mechanism import JobAllocation, MachineRoom, Part, RunnableJob


@dataclass
class Running:
    """A job that was placed."""

    job: RunnableJob
    option: int
    parts: dict[int, int] = field(default_factory=dict)


def plain_tune(jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom]) -> list[JobAllocation | None]:
    """The round, as sentences of the paper."""
    left = sum(machine.gpus for machine in machines)
    chosen = []
    for index, job in enumerate(jobs):
        if job.gpus <= left:
            chosen.append(index)
            left -= job.gpus
    chosen.sort(key=lambda i: (-jobs[i].gpus, *[-jobs[i].gpus * amount for amount in jobs[i].demand.best], i))
    running: dict[int, Running] = {}

    def free(machine: int, with_bases: bool = False) -> tuple[int, int, int]:
        gpus, cpus, memory = machines[machine]
        for each in running.values():
            held = each.job.demand.amounts(0 if with_bases else each.option)
            count = each.parts.get(machine, 0)
            gpus, cpus, memory = gpus - count, cpus - count * held.millicpus, memory - count * held.mebibytes
        return gpus, cpus, memory

    def room(machine: int, amounts: GpuAmounts, with_bases: bool) -> int:
        gpus, cpus, memory = free(machine, with_bases)
        return max(0, min([gpus, *[has // asks for has, asks in ((cpus, amounts[0]), (memory, amounts[1])) if asks]]))

    def parts_for(job: RunnableJob, amounts: GpuAmounts, with_bases: bool) -> dict[int, int] | None:
        rooms = {machine: room(machine, amounts, with_bases) for machine in range(len(machines))}
        if sum(rooms.values()) < job.gpus:
            return None
        found: dict[int, int] = {}
        missing = job.gpus
        while True:
            enough = [machine for machine, has in rooms.items() if has >= missing]
            if enough:
                found[min(enough, key=lambda machine: (*free(machine), machine))] = missing
                return found
            widest = min(rooms, key=lambda machine: (-rooms[machine], *free(machine), machine))
            found[widest] = rooms.pop(widest)
            missing -= found[widest]

    for index in chosen:
        job = jobs[index]
        for option in (job.demand.best_option, 0):
            parts = parts_for(job, job.demand.amounts(option), False)
            if parts is not None:
                running[index] = Running(job, option, parts)
                break
        else:
            parts = parts_for(job, job.demand.base, True)
            if parts is None:
                continue
            for machine, gpus in parts.items():
                revert(running, machine, gpus * job.demand.base.millicpus, gpus * job.demand.base.mebibytes, free)
            running[index] = Running(job, 0, parts)
    return [allocation_of(running.get(index)) for index in range(len(jobs))]


def revert(running, machine, cpus, memory, free) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 -- a closure's parts
    """Reverts the one that releases just enough, else the most, until it is enough."""
    while free(machine)[1] < cpus or free(machine)[2] < memory:
        candidates = []
        for order, each in enumerate(running.values()):
            if machine in each.parts and each.option:
                held, base, gpus = each.job.demand.amounts(each.option), each.job.demand.base, each.parts[machine]
                excess = free(machine)[1] + gpus * (held.millicpus - base.millicpus) - cpus
                spare = free(machine)[2] + gpus * (held.mebibytes - base.mebibytes) - memory
                enough = excess >= 0 and spare >= 0
                candidates.append((not enough, excess if enough else -excess, order, each))
        min(candidates, key=lambda candidate: candidate[:3])[3].option = 0


def allocation_of(each: Running | None) -> JobAllocation | None:
    """As the mechanism says it."""
    if each is None:
        return None
    parts = tuple(Part(machine, gpus) for machine, gpus in sorted(each.parts.items()))
    return JobAllocation(parts, each.job.demand.amounts(each.option), float(each.job.demand.speeds[each.option]))
