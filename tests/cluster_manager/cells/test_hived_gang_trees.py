"""15 cases of gangs as trees ("these tasks within one cell") that HiveD's authors wrote for a version never merged.

They name exact nodes and GPUs; which of several equal ones is taken is a matter of taste. So compared are the answer and,
for all GPUs that were given so far and all nodes that were declared bad, how close together they are.
"""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.decisions import decide
from cluster_manager.cells.hierarchy import Chain
from cluster_manager.cells.invariants import check_cells
from cluster_manager.cells.requests import AffinityGroup, CellRequest, Tasks
from cluster_manager.cells.work import Placement, TaskCells, Wait
from domain.affinity import CellAffinity
from domain.cells import CellLevel, OwnedCells, VirtualCluster
from domain.identifiers import GpuModel, MachineId, TenantId, VirtualClusterId
from domain.rank import Standing
from tests.cluster_manager.cells.conftest import ABSENT, CASES
from tests.cluster_manager.cells.hived_cluster import Json

_FILE = CASES / "v2_cases.json"
_GROUPS: Json = json.loads(_FILE.read_text(encoding="utf-8"))["groups"] if _FILE.is_file() else []
TREES = {f"{group['name']}-{case['name']}": (group, case) for group in _GROUPS for case in group["cases"]}


def _chains(group: Json) -> list[Chain]:
    types = group["physicalCluster"]["cellTypes"]
    tops: dict[str, list[str]] = {}
    for cell in group["physicalCluster"]["physicalCells"]:
        tops.setdefault(cell["cellType"], []).extend(child["cellAddress"] for child in cell["cellChildren"])
    chains: list[Chain] = []
    for name, nodes in tops.items():
        levels: list[CellLevel] = []
        cell_type, from_top = name, 0
        while cell_type in types:
            levels.append(CellLevel(cell_type, types[cell_type]["childCellNumber"]))
            if types[cell_type].get("isNodeLevel"):
                from_top = len(levels)
            cell_type = types[cell_type]["childCellType"]
        levels.append(CellLevel(cell_type))
        machines = tuple(MachineId(node) for node in nodes)
        chains.append(Chain(name, GpuModel(cell_type), tuple(reversed(levels)), machines, len(levels) - from_top + 1))
    return chains


class TreeDriver:
    def __init__(self, group: Json) -> None:
        owners = [
            VirtualCluster(
                VirtualClusterId(name),
                tuple(OwnedCells(c["cellType"], c["cellType"], c["cellNumber"]) for c in owner["virtualCells"]),
            )
            for name, owner in group["virtualClusters"].items()
        ]
        self.cells = CellCluster(_chains(group), owners)
        self.answers: dict[str, Placement | Wait] = {}
        self.tasks: dict[str, TaskCells] = {}
        self.expected: dict[str, tuple[str, list[int]]] = {}
        self.bad: list[str] = []

    def schedule(self, pod: str, wanted: Json) -> None:
        root = wanted["podRootGroup"]
        key = root["name"]
        if key not in self.cells.work:
            request = CellRequest(
                key,
                self._gang(root),
                TenantId(wanted["virtualCluster"]),
                VirtualClusterId(wanted["virtualCluster"]),
                Standing(1000 - wanted["priority"], 0),
                self._model(wanted["cellType"]),
                wanted["pinnedCellId"] or None,
                wanted["lazyPreemptionEnable"],
            )
            answer = self.answers[pod] = decide(self.cells, request)
            if isinstance(answer, Placement):
                self.cells.commit(answer)
            if not isinstance(answer, Placement) or answer.waits_for:
                return
        slots = [name for name, count in self._slots(root) for name in [name] * count]
        subgroup, number = pod.rsplit("_pod", 1)
        self.tasks[pod] = self.cells.work[key].tasks[slots.index(subgroup) + int(number) - 1]

    def _chain_of(self, cell_type: str) -> Chain:
        return next(chain for chain in self.cells.chains if cell_type in {level.name for level in chain.levels})

    def _model(self, cell_type: str) -> GpuModel:
        return self._chain_of(cell_type).gpu_model

    def _gang(self, group: Json) -> AffinityGroup:
        within = CellAffinity(group["withinOneCell"]) if group.get("withinOneCell") else None
        tasks: tuple[Tasks, ...] = ()
        if group.get("pod"):
            asked = group["pod"]["cellsPerPod"]
            chain = self._chain_of(asked["cellType"])
            level = chain.level_called(asked["cellType"])
            whole = CellAffinity(asked["cellType"]) if level > 1 else None
            gpus = asked["cellNumber"] * chain.sizes[level]
            tasks = (Tasks(group["pod"]["podMinNumber"], gpus, whole),)
        return AffinityGroup(tasks, within, tuple(self._gang(child) for child in group.get("childGroups") or []))

    def _slots(self, group: Json) -> list[tuple[str, int]]:
        own = [(group["name"], group["pod"]["podMinNumber"])] if group.get("pod") else []
        return own + [slot for child in group.get("childGroups") or [] for slot in self._slots(child)]

    def check_bound(self, pod: str, expected: Json) -> None:
        self.expected[pod] = expected["node"], expected["leafCellIsolation"]
        ours, theirs = self._gpus_given()
        assert len(ours) == len(theirs)
        for (a, b), (x, y) in zip(combinations(ours, 2), combinations(theirs, 2), strict=True):
            assert self._closeness(a, b) == self._closeness(x, y), (pod, ours, theirs)

    def _gpus_given(self) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        ours, theirs = [(node, 0) for node in self.bad], [(node, 0) for node in self.bad]
        for pod, (node, gpus) in self.expected.items():
            if pod not in self.tasks:
                continue
            task = self.tasks[pod]
            machine = str(self.cells.chains[task.chain].machines[task.machine])
            ours += [(machine, gpu) for gpu in range(task.bits.bit_length()) if task.bits >> gpu & 1]
            theirs += [(node, gpu) for gpu in gpus]
        return ours, theirs

    def _closeness(self, one: tuple[str, int], other: tuple[str, int]) -> int:
        """The lowest level at which both are in one cell; 0 where they are in none."""
        (chain, a), (other_chain, b) = (self.cells.number_of(MachineId(node)) for node, _ in (one, other))
        if chain != other_chain:
            return 0
        of_chain = self.cells.chains[chain]
        first, second = a * of_chain.gpus_per_machine + one[1], b * of_chain.gpus_per_machine + other[1]
        levels = range(1, of_chain.top + 1)
        return next((k for k in levels if first // of_chain.sizes[k] == second // of_chain.sizes[k]), 0)


@pytest.mark.skipif(not TREES, reason=ABSENT)
def test_all_trees_are_here() -> None:
    assert len(TREES) == 15


@pytest.mark.skipif(not TREES, reason=ABSENT)
@pytest.mark.parametrize("name", sorted(TREES) or ["no cases"])
def test_gangs_as_trees(name: str) -> None:
    group, case = TREES[name]
    driver = TreeDriver(group)
    for step in case["steps"]:
        given = step["parameters"]
        match step["method"]:
            case "SchedulePod":
                driver.schedule(given["podName"], given["podGroupSchedulingRequest"])
            case "DeallocatePod":
                pod = given["podName"]
                driver.cells.release(pod.rsplit("_pod", 1)[0])
                del driver.tasks[pod]
            case "SetNodeToBad":
                driver.cells.set_usable(MachineId(given["nodeName"]), usable=False)
                driver.bad.append(given["nodeName"])
            case "AssertPodBindResult":
                driver.check_bound(given["podName"], given["expectedResult"])
            case "AssertPodPreemptResult":
                answer = driver.answers[given["podName"]]
                assert isinstance(answer, Placement)
                victims = [str(key) for key in answer.waits_for]
                assert [f"{key}_pod1" for key in victims] == given["expectedResult"]["victimPods"]
            case "AssertPodWait":
                assert isinstance(driver.answers[given["podName"]], Wait)
            case other:
                raise AssertionError(f"no step {other}")
        check_cells(driver.cells)
