"""The search for a place in plain Python: reads the rules of packing, quality and preemption word by word.

No summaries, no arrays, no shortcuts: the oracle of the kernels. It is told what everybody holds and works out from
that what is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from domain.fleet import Machine, MachineState, Region
from domain.identifiers import ANY_GPU_MODEL, ClusterId, MachineId
from domain.placement import AttemptKey, Holding
from domain.rank import Standing
from domain.resources import capacity_mebibytes, capacity_millicpus, request_mebibytes, request_millicpus
from domain.workload import JobSpecification

Amounts = tuple[int, int, int]
Picks = dict[int, int]
"""Machine number -> tasks on it."""


@dataclass(frozen=True)
class PlainMachine:
    """One machine with what is free on it; `number` is its place in fleet order."""

    number: int
    name: MachineId
    cluster: int
    rack: tuple[int, int]
    machine: Machine
    takes_work: bool
    free: Amounts

    @property
    def capacity(self) -> Amounts:
        return capacity_of(self.machine)

    def need(self, job: JobSpecification) -> Amounts:
        asked = job.resources
        share = asked.gpus / self.machine.gpus if self.machine.gpus else 0.0
        millicpus = int(self.capacity[1] * share + 1e-9) if asked.cpus is None else request_millicpus(asked.cpus)
        mebibytes = (
            int(self.capacity[2] * share + 1e-9) if asked.memory_gib is None else request_mebibytes(asked.memory_gib)
        )
        return asked.gpus, millicpus, mebibytes

    def fits(self, job: JobSpecification) -> bool:
        model = job.resources.gpu_model
        right_model = job.resources.gpus == 0 or (
            self.machine.gpus > 0 and model in (ANY_GPU_MODEL, self.machine.gpu_model)
        )
        return self.takes_work and right_model

    def room(self, job: JobSpecification) -> int:
        """How many tasks find room: counted one by one."""
        if not self.fits(job):
            return 0
        need = self.need(job)
        room = 0
        while room < job.tasks and all(n == 0 or (room + 1) * n <= f for n, f in zip(need, self.free, strict=True)):
            room += 1
        return room

    def plus(self, amounts: Amounts, sign: int) -> PlainMachine:
        gpus, millicpus, mebibytes = (f + sign * a for f, a in zip(self.free, amounts, strict=True))
        return replace(self, free=(gpus, millicpus, mebibytes))


@dataclass(frozen=True)
class PlainPlace:
    cluster: int
    picks: Picks
    victims: tuple[AttemptKey, ...]
    spread: int
    fragmentation: float


def capacity_of(machine: Machine) -> Amounts:
    return machine.gpus, capacity_millicpus(machine.cpus), capacity_mebibytes(machine.memory_gib)


def plain_machines(
    region: Region, states: dict[MachineId, MachineState], holdings: Sequence[Holding]
) -> list[PlainMachine]:
    machines: list[PlainMachine] = []
    for cluster_number, cluster in enumerate(region.clusters):
        for rack_number, rack in enumerate(cluster.racks):
            for machine in rack.machines:
                up = states.get(machine.machine, MachineState.UP).takes_work
                place = (cluster_number, rack_number)
                capacity = capacity_of(machine)
                machines.append(
                    PlainMachine(len(machines), machine.machine, cluster_number, place, machine, up, capacity)
                )
    for holding in holdings:
        machines = after(machines, holding, -1)
    return machines


def after(
    machines: list[PlainMachine], holding: Holding, sign: int, cluster: ClusterId | None = None
) -> list[PlainMachine]:
    """The machines after giving back (1) or charging (-1) a holding, or its part in one cluster."""
    changed = list(machines)
    number_of = {machine.name: machine.number for machine in machines}
    for placement in holding.placements:
        if cluster is None or placement.cluster == cluster:
            number = number_of[placement.machine]
            amounts = (len(placement.gpu_indices), placement.millicpus, placement.mebibytes)
            changed[number] = changed[number].plus(amounts, sign)
    return changed


def total_room(machines: Sequence[PlainMachine], job: JobSpecification) -> int:
    return sum(machine.room(job) for machine in machines)


# Packing: the numbered rules of cluster_manager.packing.


def choose(machines: Sequence[PlainMachine], job: JobSpecification) -> Picks | None:
    """The machines of one cluster for all tasks; None when there is no room."""
    if job.resources.gpus > 0:
        return choose_among(machines, job, job.tasks)
    without = [machine for machine in machines if machine.machine.gpus == 0]
    with_gpus = [machine for machine in machines if machine.machine.gpus > 0]
    picks = choose_among(without, job, job.tasks)
    if picks is not None:
        return picks
    filled = {machine.number: machine.room(job) for machine in without if machine.room(job) > 0}
    rest = choose_among(with_gpus, job, job.tasks - sum(filled.values()))
    return None if rest is None else filled | rest


def choose_among(machines: Sequence[PlainMachine], job: JobSpecification, tasks: int) -> Picks | None:
    if job.resources.gpus > 0:
        single = [machine for machine in machines if machine.room(job) >= tasks]
        if single:
            tightest = min(single, key=lambda m: (m.free[0], m.number))
            # Of several tasks that fill fragments an idle machine is not the first choice.
            if not (job.fills_fragments and tasks > 1 and tightest.free[0] >= tightest.capacity[0]):
                return {tightest.number: tasks}
    racks: dict[tuple[int, int], list[PlainMachine]] = {}
    for machine in machines:
        racks.setdefault(machine.rack, []).append(machine)
    holding_all = [rack for rack, those in racks.items() if total_room(those, job) >= tasks]
    if holding_all and job.consolidate:
        best = min(holding_all, key=lambda rack: (len(pack(racks[rack], job, tasks)), rack))
        return pack(racks[best], job, tasks)
    if holding_all:
        return pack(racks[min(holding_all)], job, tasks)
    if total_room(machines, job) < tasks:
        return None
    picks: Picks = {}
    while True:
        remaining = tasks - sum(picks.values())
        enough = [rack for rack, those in racks.items() if total_room(those, job) >= remaining]
        if enough:
            last = min(enough, key=lambda rack: (total_room(racks[rack], job), rack))
            return picks | pack(racks[last], job, remaining)
        widest = max(racks, key=lambda rack: (total_room(racks[rack], job), (-rack[0], -rack[1])))
        picks |= {machine.number: machine.room(job) for machine in racks.pop(widest) if machine.room(job) > 0}


def pack(machines: Sequence[PlainMachine], job: JobSpecification, tasks: int) -> Picks:
    """Machines of one rack for so many tasks, which it must have room for."""
    room = {machine.number: min(machine.room(job), tasks) for machine in machines if machine.room(job) > 0}
    by_number = {machine.number: machine for machine in machines}
    fills = job.fills_fragments and job.resources.gpus > 0

    def whole_key(number: int) -> tuple[int, int, int]:
        if fills:
            return max(0, by_number[number].free[0]), -room[number], number
        left_idle = max(0, by_number[number].free[0]) - room[number] * job.resources.gpus
        if job.consolidate or job.resources.gpus == 0:
            return -room[number], left_idle, number
        return left_idle, -room[number], number

    def idle(number: int) -> int:
        machine = by_number[number]
        return max(0, machine.free[0]) if machine.machine.gpus > 0 else machine.free[1]

    picks: Picks = {}
    while True:
        remaining = tasks - sum(picks.values())
        unused = [number for number in room if number not in picks]
        in_turn = [min(unused, key=whole_key)] if fills else unused
        enough = [number for number in in_turn if room[number] >= remaining]
        if enough:
            picks[min(enough, key=lambda number: (idle(number), number))] = remaining
            return picks
        first = min(unused, key=whole_key)
        picks[first] = room[first]


def spread(machines: Sequence[PlainMachine], job: JobSpecification, picks: Picks) -> int:
    if not job.consolidate:
        return 0
    racks = {machine.rack for machine in machines if machine.number in picks}
    return (len(racks) - 1) * 1_000_000 + len(picks) - 1


def fragmentation(machines: Sequence[PlainMachine], job: JobSpecification, picks: Picks) -> float:
    used = [machine for machine in machines if machine.number in picks]
    if job.resources.gpus > 0:
        return float(sum(machine.free[0] - picks[machine.number] * job.resources.gpus for machine in used))
    shares = [
        max(machine.free[1] - picks[machine.number] * machine.need(job)[1], 0) * 1_000_000 // machine.capacity[1]
        for machine in used
        if machine.capacity[1] > 0
    ]
    return sum(machine.machine.gpus for machine in used) + sum(shares) // len(used) / 1_000_000


# Preemption: the two steps of cluster_manager.eviction.victims.


def scan_order(holding: Holding) -> tuple[int, int, float, str, int]:
    standing = holding.standing
    return -standing.priority, -standing.level, holding.started_s, holding.key.workload, holding.key.attempt


def relevant(machines: Sequence[PlainMachine], job: JobSpecification, holding: Holding, *, gpu_machines: bool) -> bool:
    """Whether the holding has something on a machine of that sort where the job could run."""
    held = {placement.machine for placement in holding.placements}
    return any(
        machine.name in held and empty_room(machine, job) > 0 and (machine.machine.gpus > 0) == gpu_machines
        for machine in machines
    )


def empty_room(machine: PlainMachine, job: JobSpecification) -> int:
    return replace(machine, free=machine.capacity).room(job)


def size(machines: Sequence[PlainMachine], job: JobSpecification, holding: Holding) -> int:
    by_name = {machine.name: machine for machine in machines}
    total = 0
    for placement in holding.placements:
        machine = by_name.get(placement.machine)
        if machine is None or empty_room(machine, job) == 0:
            continue
        if job.resources.gpus > 0:
            total += len(placement.gpu_indices)
        elif machine.machine.gpus == 0:
            total += placement.millicpus
    return total


@dataclass
class ClusterScan:
    """One cluster while candidates are scanned: what it looks like with those so far gone."""

    machines: list[PlainMachine]
    candidates: list[Holding]

    def take(self, job: JobSpecification, holding: Holding, *, gpu_machines: bool) -> None:
        if relevant(self.machines, job, holding, gpu_machines=gpu_machines):
            for placement in holding.placements:
                for index, machine in enumerate(self.machines):
                    if machine.name == placement.machine and (machine.machine.gpus > 0) == gpu_machines:
                        amounts = (len(placement.gpu_indices), placement.millicpus, placement.mebibytes)
                        self.machines[index] = machine.plus(amounts, 1)
            if holding not in self.candidates:
                self.candidates.append(holding)


def scan(
    clusters: dict[int, list[PlainMachine]], job: JobSpecification, standing: Standing, evictable: Sequence[Holding]
) -> dict[int, list[Holding]]:
    """Step 1: per cluster that has enough first, whom that takes."""
    scans = {cluster: ClusterScan(list(machines), []) for cluster, machines in clusters.items()}
    worse = sorted((holding for holding in evictable if standing < holding.standing), key=scan_order)
    sorts = (True,) if job.resources.gpus > 0 else (False, True)
    for priority in sorted({holding.standing.priority for holding in worse}, reverse=True):
        for gpu_machines in sorts:
            enough: dict[int, list[Holding]] = {}
            for holding in worse:
                if holding.standing.priority == priority:
                    for cluster, state in scans.items():
                        if cluster not in enough:
                            state.take(job, holding, gpu_machines=gpu_machines)
                            if total_room(state.machines, job) >= job.tasks:
                                enough[cluster] = list(state.candidates)
            if enough:
                return enough
    return {}


def spare(machines: list[PlainMachine], job: JobSpecification, scanned: list[Holding]) -> list[Holding]:
    """Step 2 in one cluster: whom it takes after all. Candidates scanned later are spared first."""
    names = {machine.name for machine in machines}
    order = sorted(
        range(len(scanned)),
        key=lambda index: (scanned[index].standing.priority, size(machines, job, scanned[index]), -index),
    )
    kept = set(range(len(scanned)))

    def room_without(spared: int) -> int:
        state = machines
        for index in kept - {spared}:
            here = tuple(placement for placement in scanned[index].placements if placement.machine in names)
            state = renumbered(after(renumbered(state), scanned[index]._replace(placements=here), 1))
        return total_room(state, job)

    for index in order:
        if room_without(index) >= job.tasks:
            kept.remove(index)
    return [scanned[index] for index in sorted(kept)]


def renumbered(machines: Sequence[PlainMachine]) -> list[PlainMachine]:
    return [replace(machine, number=number) for number, machine in enumerate(machines)]


def plain_find(
    region: Region,
    states: dict[MachineId, MachineState],
    holdings: Sequence[Holding],
    leaving: set[AttemptKey],
    job: JobSpecification,
    standing: Standing,
    now_s: float,
) -> PlainPlace | None:
    """The best place in the region, with evictions only where the job does not fit otherwise."""
    machines = plain_machines(region, states, holdings)
    clusters = {
        number: [machine for machine in machines if machine.cluster == number] for number in range(len(region.clusters))
    }
    found: list[tuple[int, float, int, Picks]] = []
    for cluster, those in clusters.items():
        picks = choose(those, job)
        if picks is not None:
            found.append((spread(those, job, picks), fragmentation(those, job, picks), cluster, picks))
    if found:
        spread_, fragmentation_, cluster, picks = min(found, key=lambda place: place[:3])
        return PlainPlace(cluster, picks, (), spread_, fragmentation_)
    evictable = [h for h in holdings if h.key not in leaving and h.evictable_from_s <= now_s]
    best: tuple[tuple[tuple[int, ...], float, int, float, int], PlainPlace] | None = None
    for cluster, scanned in sorted(scan(clusters, job, standing, evictable).items()):
        victims = spare(clusters[cluster], job, scanned)
        emptied = list(machines)
        for victim in victims:
            emptied = after(emptied, victim, 1, region.clusters[cluster].cluster)
        those = [machine for machine in emptied if machine.cluster == cluster]
        picks = choose(those, job)
        assert picks is not None
        counts = tuple(sum(victim.standing.priority == priority for victim in victims) for priority in range(7))
        running_s = 0.0
        for victim in victims:
            running_s -= max(now_s - victim.started_s, 0.0)
        place = PlainPlace(
            cluster,
            picks,
            tuple(victim.key for victim in victims),
            spread(those, job, picks),
            fragmentation(those, job, picks),
        )
        key = (counts, running_s, place.spread, place.fragmentation, cluster)
        if best is None or key < best[0]:
            best = (key, place)
    return best[1] if best else None
