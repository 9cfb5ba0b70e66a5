"""Runs with cells that begin in the middle: bindings are those that there were, and so are all later decisions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.cells.declared import declarations_of, fleet_with_virtual_clusters
from domain.cells import CellHierarchy, CellLevel, ClusterCells
from domain.declared_cells import DeclaredCells, DeclaredMachines, DeclaredVirtualCluster
from domain.events import Event
from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, ClusterId, TenantId
from domain.resources import Quota
from domain.snapshot import Snapshot
from domain.tenant import Tenant
from formats.snapshot_file import dump_snapshot, parse_snapshot
from formats.trace import TraceRow
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.registry import policy_called
from tests.examples import examples
from tests.simulator.engine.checked_run import V100, machine, region, row
from tests.simulator.engine.test_resuming import AT_ONCE, later

CLUSTER = ClusterId("r-c")
LEVELS = tuple(CellLevel(name, split) for name, split in (("gpu", 1), ("switch", 2), ("socket", 2), ("machine", 2)))
UNLIMITED = Quota.of({ANY_GPU_MODEL: 1_000_000})
TENANTS = (
    Tenant(
        TenantId("a"),
        0,
        UNLIMITED,
        virtual_clusters=(DeclaredVirtualCluster(CLUSTER, machines=DeclaredMachines(16, 2)),),
    ),
    Tenant(
        TenantId("b"),
        0,
        UNLIMITED,
        virtual_clusters=(DeclaredVirtualCluster(CLUSTER, (DeclaredCells("machine", 1), DeclaredCells("socket", 1))),),
    ),
    Tenant(TenantId("low"), 0, UNLIMITED),
)


def divided_fleet() -> Fleet:
    """Four machines of eight GPUs, all but four of which the tenants own."""
    (cluster,) = region("r", [machine(f"m{n}", 8) for n in range(4)]).clusters
    cells = ClusterCells((CellHierarchy("v100", V100, LEVELS),))
    return Fleet((replace(region("r"), clusters=(replace(cluster, mechanism="cells", cells=cells),)),))


def trace(seed: int, count: int = 40) -> list[TraceRow]:
    generator = np.random.default_rng(seed)
    submitted_s = np.cumsum(generator.exponential(25.0, count))
    tenants = generator.choice(["a", "b", "low"], count)
    gpus = generator.choice([1, 2, 4, 8, 16], count, p=[0.3, 0.2, 0.2, 0.2, 0.1])
    return [
        row(f"w{n:02}", float(submitted_s[n]), float(generator.exponential(200.0) + 1.0), int(gpus[n]), str(tenants[n]))
        for n in range(count)
    ]


def run(given: SimulationInput, policy: str, run_settings: SimulationSettings) -> tuple[list[Event], Simulation]:
    log: list[Event] = []
    simulation = Simulation(given, policy_called(policy), run_settings, 1, log.append)
    simulation.run()
    return log, simulation


@pytest.mark.parametrize("policy", ["fifo", "las", "srtf"])
@settings(max_examples=examples(10))
@given(seed=st.integers(0, 2**16), after_s=st.sampled_from((35.0, 205.0, 415.0, 805.0)))
def test_never_another_course_after_a_snapshot(policy: str, seed: int, after_s: float) -> None:
    rows = trace(seed)
    fleet = fleet_with_virtual_clusters(divided_fleet(), declarations_of(TENANTS))
    given = SimulationInput("test", rows, fleet, TENANTS)
    whole, _ = run(given, policy, AT_ONCE)
    _, stopped = run(given, policy, AT_ONCE.model_copy(update={"stop_after_s": after_s}))
    written = stopped.snapshot()
    snapshot = parse_snapshot(dump_snapshot(written))
    rest = [one for one in rows if one.submit_s > snapshot.taken_s]
    if not snapshot.workloads() and not rest:
        return
    assert [one.cells for one in snapshot.running] == [one.cells for one in written.running]
    resumed, _ = run(SimulationInput.of_snapshot(snapshot, "test", rest), policy, AT_ONCE)
    assert later(resumed, snapshot.taken_s) == later(whole, snapshot.taken_s)


def test_a_snapshot_has_the_cells_of_what_runs() -> None:
    fleet = fleet_with_virtual_clusters(divided_fleet(), declarations_of(TENANTS))
    rows = [row("owned", 0.0, 1000.0, 8, "a"), row("guest", 1.0, 1000.0, 4, "low")]
    stop = AT_ONCE.model_copy(update={"stop_after_s": 10.0})
    _, stopped = run(SimulationInput("test", rows, fleet, TENANTS), "fifo", stop)
    snapshot: Snapshot = stopped.snapshot()
    assert {str(one.key.workload): [use.virtual_cluster for _, use in one.cells] for one in snapshot.running} == {
        "owned": ["a"],
        "guest": [],
    }
