"""Carries recorded steps of HiveD out: its protocol (pods of a gang one by one, phases, suggested nodes) on our cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from benchmarks.rebuilt_cells import rebuilt
from cluster_manager.cells.assignment import AssignmentProblem
from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.decisions import decide
from cluster_manager.cells.rebuild import CellHolding, HeldTask
from cluster_manager.cells.requests import AffinityGroup, CellRequest, InvalidRequest, Tasks
from cluster_manager.cells.work import TaskCells, Wait
from domain.identifiers import GpuModel, MachineId, TenantId, VirtualClusterId
from domain.rank import Standing
from tests.cluster_manager.cells.hived_cluster import HivedCluster, Json, cluster_of, machine_id, node_of

OPPORTUNISTIC = -1
HIGHEST = 1000
PREEMPTING, ALLOCATED = "Preempting", "Allocated"


class Member(TypedDict):
    podNumber: int
    leafCellNumber: int


@dataclass
class Answer:
    outcome: str
    node: str = ""
    gpus: tuple[int, ...] = ()
    chain: int = 0
    machine: int = 0
    bits: int = 0
    victims: frozenset[str] = frozenset()
    """Pods on the GPUs that were found."""
    downgraded: frozenset[str] = frozenset()


@dataclass
class Group:
    """A gang as the protocol sees it."""

    name: str
    state: str
    slots: list[int]
    """[task] how many GPUs it has."""
    pods: dict[str, int] = field(default_factory=dict)
    """The tasks of the pods that are bound."""
    preempting: dict[str, None] = field(default_factory=dict)
    """The pods that wait for others to leave."""


class HivedDriver:
    def __init__(self, clusters: Mapping[str, Json], pods: Mapping[str, Json]) -> None:
        self._clusters = clusters
        self._pods = pods
        self.cluster: HivedCluster
        self.cells: CellCluster
        self.groups: dict[str, Group] = {}
        self._recovered: list[CellHolding] = []
        self._our_node: dict[str, str] = {}

    # Steps.

    def configure(self, name: str) -> str:
        self.cluster = cluster_of(self._clusters[name], self._clusters["design"])
        self.groups = {}
        self._recovered = []
        try:
            self.cells = CellCluster(self.cluster.chains, self.cluster.virtual_clusters)
        except AssignmentProblem:
            return "error"
        for chain in self.cluster.chains:
            for machine in chain.machines:
                self.cells.set_usable(machine, usable=False)
        return "ok"

    def set_nodes(self, nodes: Sequence[str] | None, *, usable: bool) -> None:
        """None: all. The names are those of the recorded placements, see `name_alike`."""
        nodes = None if nodes is None else [self._our_node.get(node, node) for node in nodes]
        for chain in self.cluster.chains:
            for machine in chain.machines:
                if nodes is None or node_of(machine) in nodes:
                    self.cells.set_usable(machine, usable=usable)

    def schedule(self, pod: str, phase: str, suggested: Json, *, commit: bool) -> Answer:
        wanted = self._pods[pod]
        try:
            request = request_of(wanted)
        except InvalidRequest:
            return Answer("user_error")
        barred = [] if wanted["ignoreK8sSuggestedNodes"] else self._not_suggested(suggested)
        name = wanted["affinityGroup"]["name"]
        group = self.groups.get(name)
        if group is not None and group.state == PREEMPTING and self._uses(name, barred):
            self._cancel(group)
            group = None
        if group is not None:
            return self._join(group, pod, commit=commit)
        try:
            found = decide(self.cells, request, barred)
        except InvalidRequest:
            return Answer("user_error")
        if isinstance(found, Wait):
            return Answer("wait")
        slots = [tasks.gpus for tasks in request.gang.all_tasks() for _ in range(tasks.count)]
        waits_for = [key for key in found.waits_for if self.groups[str(key)].state == ALLOCATED]
        group = Group(name, PREEMPTING if waits_for else ALLOCATED, slots)
        slot = group.slots.index(wanted["leafCellNumber"])
        answer = self._preempting(waits_for) if waits_for else self._bound(found.tasks[slot])
        answer.downgraded = frozenset(str(key) for key in found.downgraded)
        if (waits_for and phase == "Preempting") or (not waits_for and commit):
            self.cells.commit(found)
            self.groups[name] = group
            for key in found.victims:
                if self.groups[str(key)].state == PREEMPTING and key != name:
                    self._cancel(self.groups[str(key)])
            if waits_for:
                group.preempting[pod] = None
            else:
                group.pods[pod] = slot
        return answer

    def add_allocated(self, pod: str, told: Json) -> None:
        """The pod runs where it was told to before a restart; so does the rest of its gang."""
        wanted = self._pods[pod]
        name = wanted["affinityGroup"]["name"]
        tasks = told["groupPlacement"]
        if name not in self.groups:
            request = request_of(wanted)
            self.groups[name] = Group(name, ALLOCATED, [task["leafCellNumber"] for task in tasks])
            holding = CellHolding(request, told["chain"], tuple(self._held(told["chain"], task) for task in tasks))
            unusable = [machine for machine in self.cluster.gpu_indices if not self._is_usable(machine)]
            # What pods were told is not what later work made of it, so all are seated anew, the best standing first.
            self._recovered.append(holding)
            self.cells = rebuilt(self.cluster.chains, self.cluster.virtual_clusters, self._recovered, unusable)
        slot = next(
            n for n, task in enumerate(tasks) if (task["node"], task["leafCells"]) == (told["node"], told["leafCells"])
        )
        self.groups[name].pods[pod] = slot

    def delete_allocated(self, pod: str) -> None:
        group = self.groups[self._pods[pod]["affinityGroup"]["name"]]
        del group.pods[pod]
        if not group.pods:
            self.cells.release(group.name)
            del self.groups[group.name]

    def delete_unallocated(self, pod: str) -> None:
        group = self.groups.get(self._pods[pod]["affinityGroup"]["name"])
        if group is not None and group.state == PREEMPTING:
            group.preempting.pop(pod, None)
            if not group.preempting:
                self._cancel(group)

    def name_alike(self, pod: str, recorded: Json) -> None:
        """Where a gang was put on other nodes than in the recording, these change names for what is done to nodes later.

        Which of several equal nodes is taken is a matter of taste; that one in use fails, or an idle one, is not.
        """
        tasks = self.cells.work[self._pods[pod]["affinityGroup"]["name"]].tasks
        ours = sorted(
            (task.bits.bit_count(), node_of(self.cells.chains[task.chain].machines[task.machine])) for task in tasks
        )
        theirs = sorted((task["leafCellNumber"], task["node"]) for task in recorded["groupPlacement"])
        for (_, node), (_, name) in zip(ours, theirs, strict=True):
            had = self._our_node.get(name, name)
            if had != node:
                other = next((n for n, image in self._our_node.items() if image == node), node)
                self._our_node[name], self._our_node[other] = node, had

    # Parts of them.

    def _is_usable(self, machine: MachineId) -> bool:
        chain, number = self.cells.number_of(machine)
        return number not in self.cells.occupancy(chain).unusable

    def _held(self, chain: str, task: Json) -> HeldTask:
        where = machine_id(chain, task["node"])
        if not self.cells.has_machine(where):
            where = next((m for m in self.cluster.gpu_indices if node_of(m) == task["node"]), where)
        indices = self.cluster.gpu_indices.get(where, ())
        bits = sum(1 << indices.index(gpu) for gpu in task["leafCells"] if gpu in indices)
        level = task["preassignedCellTypes"][0]
        return HeldTask(where, bits, level or None)

    def _not_suggested(self, suggested: Json) -> list[MachineId]:
        if suggested == "all":
            return []
        machines = [machine for chain in self.cluster.chains for machine in chain.machines]
        if isinstance(suggested, list):
            return [machine for machine in machines if node_of(machine) not in suggested]
        return [machine for machine in machines if node_of(machine) in suggested["allExcept"]]

    def _uses(self, name: str, machines: Sequence[MachineId]) -> bool:
        held = {self.cells.chains[task.chain].machines[task.machine] for task in self.cells.work[name].tasks}
        return not held.isdisjoint(machines)

    def _join(self, group: Group, pod: str, *, commit: bool) -> Answer:
        """A further pod of a gang whose place is decided."""
        gpus = self._pods[pod]["leafCellNumber"]
        taken = set(group.pods.values())
        slots = [slot for slot, size in enumerate(group.slots) if size == gpus and slot not in taken]
        if not slots:
            return Answer("user_error")
        waits_for = self.cells.waiting_for(group.name)
        if waits_for:
            group.preempting[pod] = None
            return self._preempting(waits_for)
        if commit:
            group.state = ALLOCATED
            group.preempting.pop(pod, None)
            group.pods[pod] = slots[0]
        return self._bound(self.cells.work[group.name].tasks[slots[0]])

    def _bound(self, task: TaskCells) -> Answer:
        machine = self.cells.chains[task.chain].machines[task.machine]
        indices = self.cluster.gpu_indices[machine]
        gpus = tuple(index for bit, index in enumerate(indices) if task.bits >> bit & 1)
        return Answer("bind", node_of(machine), gpus, task.chain, task.machine, task.bits)

    def _preempting(self, waits_for: Sequence[object]) -> Answer:
        return Answer("preempt", victims=frozenset(pod for key in waits_for for pod in self.groups[str(key)].pods))

    def _cancel(self, group: Group) -> None:
        """A gang that was waiting for others to leave gives up; whom nobody else waits for stays."""
        waited_for = self.cells.waiting_for(group.name)
        self.cells.release(group.name)
        del self.groups[group.name]
        still = {
            key
            for other in self.groups.values()
            if other.state == PREEMPTING
            for key in self.cells.waiting_for(other.name)
        }
        for key in waited_for:
            if key not in still:
                self.cells.work[key].leaving = False
                self.cells.revision += 1


def request_of(pod: Json) -> CellRequest:
    """Raises InvalidRequest as HiveD has user errors."""
    members: list[Member] = pod["affinityGroup"]["members"]
    sizes: dict[int, int] = {}
    for member in members:
        sizes[member["leafCellNumber"]] = sizes.get(member["leafCellNumber"], 0) + member["podNumber"]
    if pod["leafCellNumber"] not in sizes:
        raise InvalidRequest(f"no member has {pod['leafCellNumber']} GPUs")
    priority: int = pod["priority"]
    if not OPPORTUNISTIC <= priority <= HIGHEST:
        raise InvalidRequest(f"priority {priority}")
    owner = pod["virtualCluster"]
    return CellRequest(
        pod["affinityGroup"]["name"],
        AffinityGroup(tuple(Tasks(count, gpus) for gpus, count in sizes.items())),
        TenantId(owner),
        None if priority == OPPORTUNISTIC else VirtualClusterId(owner),
        Standing(HIGHEST - priority, 0),
        GpuModel(pod["leafCellType"]) if pod["leafCellType"] else None,
        pod["pinnedCellId"] or None,
        pod["lazyPreemptionEnable"],
    )
