"""Cells at the size of a large cluster: ``python -m benchmarks.cells [--requests N]``.

65,536 GPUs: 8 racks of 1,024 machines of 8. Measured are: cells allocated and released at random levels, as Algorithm 1
does it; whole decisions for jobs in virtual clusters, guaranteed and opportunistic, carried out; a gang of a whole rack;
and the start, from nothing and from what was written down.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from benchmarks.measurement import report, summary_of
from benchmarks.rebuilt_cells import holdings, rebuilt
from cluster_manager.cells.buddy import BuddyCells, NotFree
from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.decisions import decide
from cluster_manager.cells.hierarchy import Chain
from cluster_manager.cells.occupancy import Occupancy
from cluster_manager.cells.requests import AffinityGroup, CellRequest, Tasks
from cluster_manager.cells.work import Placement
from domain.affinity import CellAffinity
from domain.cells import CellLevel, OwnedCells, VirtualCluster
from domain.identifiers import GpuModel, MachineId, TenantId, VirtualClusterId
from domain.rank import Standing

RACKS, MACHINES_PER_RACK = 8, 1_024
LEVELS = (
    CellLevel("gpu"),
    CellLevel("switch", 2),
    CellLevel("socket", 2),
    CellLevel("machine", 2),
    CellLevel("rack", MACHINES_PER_RACK),
)
SEED = 1
TENANTS = 8

Result = TypeVar("Result")


def large_chain() -> Chain:
    machines = tuple(MachineId(f"m{number}") for number in range(RACKS * MACHINES_PER_RACK))
    return Chain("V100", GpuModel("V100"), LEVELS, machines, 4)


def virtual_clusters() -> list[VirtualCluster]:
    """Half of the racks belong to one tenant each; the others share the rest in machines and sockets."""
    owners = [
        VirtualCluster(VirtualClusterId(f"t{number}"), (OwnedCells("V100", "rack", 1),))
        for number in range(TENANTS // 2)
    ]
    for number in range(TENANTS // 2, TENANTS):
        cells = OwnedCells("V100", "machine", 768), OwnedCells("V100", "socket", 512)
        owners.append(VirtualCluster(VirtualClusterId(f"t{number}"), cells))
    return owners


def work_size(**more: object) -> dict[str, object]:
    return {
        "gpus": RACKS * MACHINES_PER_RACK * 8,
        "racks": RACKS,
        "machines_per_rack": MACHINES_PER_RACK,
        "seed": SEED,
        **more,
    }


class Timed:
    """Durations of calls, by the clock and of the processor."""

    def __init__(self) -> None:
        self.durations_s: list[float] = []
        self.processor_s: list[float] = []

    def call(self, function: Callable[[], Result]) -> Result:
        began_s, started_s = time.thread_time(), time.perf_counter()
        result = function()
        self.durations_s.append(time.perf_counter() - started_s)
        self.processor_s.append(time.thread_time() - began_s)
        return result

    def report(self, name: str, work: dict[str, object], budget: str, **extra: object) -> None:
        processor = summary_of(self.processor_s)
        more = {"processor_mean_s": processor["mean_s"], "processor_p50_s": processor["p50_s"]}
        report(name, work, self.durations_s, budget, {**more, "processor_p99_s": processor["p99_s"], **extra})


def measure_allocation(requests: int) -> None:
    """Requests at random levels, two thirds of them allocations; what is not free is not counted."""
    generator = np.random.default_rng(SEED)
    cells, timed = BuddyCells(Occupancy(large_chain())), Timed()
    allocated: list[tuple[int, int]] = []
    refused = 0

    def allocate(level: int) -> int:
        cell = cells.choose(level)
        cells.allocate(level, cell)
        return cell

    while len(timed.durations_s) < requests:
        if allocated and generator.random() < 1 / 3:
            level, cell = allocated.pop(int(generator.integers(len(allocated))))
            timed.call(lambda level=level, cell=cell: cells.release(level, cell))  # type: ignore[misc]  # bound at once
            continue
        level = int(generator.integers(1, len(LEVELS) + 1))
        try:
            chosen = timed.call(lambda level=level: allocate(level))  # type: ignore[misc]  # bound at once
        except NotFree:
            refused += 1
            continue
        allocated.append((level, chosen))
    timed.report("cell_allocation", work_size(requests=requests, refused=refused), "mean <= 0.05 ms a request")


def request(key: str, owner: int | None, tasks: int, gpus: int, within: str | None = None) -> CellRequest:
    name = f"t{owner}" if owner is not None else "low"
    gang = AffinityGroup((Tasks(tasks, gpus),), CellAffinity(within) if within is not None else None)
    virtual_cluster = VirtualClusterId(name) if owner is not None else None
    return CellRequest(key, gang, TenantId(name), virtual_cluster, Standing(3, 0))


def measure_decisions(requests: int) -> None:
    """Jobs of 1 to 64 GPUs, a third of them opportunistic, which come and go; each decided and carried out."""
    generator = np.random.default_rng(SEED)
    started_s = time.thread_time()
    cells = CellCluster([large_chain()], virtual_clusters())
    start_s = time.thread_time() - started_s
    guaranteed, opportunistic = Timed(), Timed()
    waits = 0
    for number in range(requests):
        if cells.work and generator.random() < 0.3:
            cells.release(list(cells.work)[int(generator.integers(len(cells.work)))])
            continue
        gpus = int(generator.choice([1, 1, 1, 2, 4, 8]))
        tasks = 1 if gpus < 8 else int(generator.choice([1, 1, 2, 4, 8]))
        owner = None if generator.random() < 1 / 3 else int(generator.integers(TENANTS))
        asked = request(f"w{number}", owner, tasks, gpus)
        answer = (guaranteed if owner is not None else opportunistic).call(lambda asked=asked: place(cells, asked))  # type: ignore[misc]  # bound at once
        if answer is not None:
            for victim in answer.victims:
                cells.release(victim)
        waits += answer is None
    work = work_size(requests=requests, waits=waits, running=len(cells.work))
    guaranteed.report("cells_guaranteed", work, "", start_processor_s=round(start_s, 3))
    opportunistic.report("cells_opportunistic", work, "")
    restart = Timed()
    held, owners = holdings(cells), virtual_clusters()
    restart.call(lambda: rebuilt([large_chain()], owners, held))
    restart.report("cells_restart", work_size(running=len(held)), "start <= 3 s")


def place(cells: CellCluster, asked: CellRequest) -> Placement | None:
    """Decides and carries out; victims are still there."""
    answer = decide(cells, asked)
    if not isinstance(answer, Placement):
        return None
    cells.commit(answer)
    return answer


def measure_gang(name: str, repeats: int, opportunistic: int, *, as_groups: bool = False) -> None:
    """8,192 GPUs within one rack for an owner of a rack, with so many opportunistic gangs of 8 machines around.

    As groups: 1,024 of them, each of 2 tasks of 4 GPUs within one machine.
    """
    pair = AffinityGroup((Tasks(2, 4),), CellAffinity("machine"))
    groups = AffinityGroup((), CellAffinity("rack"), (pair,) * MACHINES_PER_RACK)
    cells, timed = CellCluster([large_chain()], virtual_clusters()), Timed()
    victims: list[int] = []
    for repeat in range(repeats):
        for number in range(opportunistic):
            if f"o{number}" not in cells.work:
                place(cells, request(f"o{number}", None, 8, 8))
        asked = request(f"w{repeat}", repeat % (TENANTS // 2), MACHINES_PER_RACK, 8, "rack")
        asked = replace(asked, gang=groups) if as_groups else asked
        placement = timed.call(lambda asked=asked: place(cells, asked))  # type: ignore[misc]  # bound at once
        if placement is None:
            raise RuntimeError(f"{asked.key} found no place")
        victims.append(len(placement.victims))
        for key in (asked.key, *placement.victims):
            cells.release(key)
    timed.report(name, work_size(gang_gpus=8 * MACHINES_PER_RACK, repeats=repeats), "<= 20 ms", victims=max(victims))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure cells.")
    parser.add_argument("--requests", type=int, default=10_000, help="requests per series")
    requests = parser.parse_args().requests
    measure_allocation(requests)
    measure_decisions(requests // 2)
    measure_gang("cells_gang_idle", 12, 0)
    measure_gang("cells_gang_of_groups", 12, 0, as_groups=True)
    measure_gang("cells_gang_evicting", 4, RACKS * MACHINES_PER_RACK // 8)


if __name__ == "__main__":
    main()
