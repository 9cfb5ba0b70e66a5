"""Who uses what of the cells: the sums add up, and are what counting GPU by GPU gives."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.cells.declared import declarations_of, fleet_with_virtual_clusters
from cluster_manager.cells.usage import CellUsage, cell_usage
from domain.fleet import MachineState
from domain.identifiers import MachineId, TenantId
from domain.placement import AttemptKey
from formats.trace import TraceRow
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.registry import policy_called
from tests.examples import examples
from tests.simulator.engine.checked_run import row
from tests.simulator.engine.test_resuming import AT_ONCE
from tests.simulator.engine.test_resuming_cells import TENANTS, divided_fleet, trace


def stopped(rows: Sequence[TraceRow], after_s: float, down: dict[str, MachineState] | None = None) -> Simulation:
    fleet = fleet_with_virtual_clusters(divided_fleet(), declarations_of(TENANTS))
    settings_of_run = AT_ONCE.model_copy(update={"stop_after_s": after_s})
    simulation = Simulation(SimulationInput("test", rows, fleet, TENANTS), policy_called("fifo"), settings_of_run, 1)
    simulation.run()
    (member,) = simulation.world.regions.members
    for machine, state in (down or {}).items():
        member.inventory.set_machine_state(MachineId(machine), state)
    return simulation


def usage_of(simulation: Simulation) -> CellUsage:
    (member,) = simulation.world.regions.members
    tenants: dict[AttemptKey, TenantId] = {
        work.key: work.workload.specification.tenant for work in simulation.world.live.values()
    }
    return cell_usage(member.inventory.clusters[0], tenants)


@given(
    seed=st.integers(0, 2**16),
    after_s=st.sampled_from((35.0, 205.0, 415.0, 805.0)),
    drained=st.sets(st.sampled_from(["m0", "m1", "m2", "m3"]), max_size=2),
)
@settings(max_examples=examples(30))
def test_never_a_sum_that_does_not_add_up(seed: int, after_s: float, drained: set[str]) -> None:
    simulation = stopped(trace(seed), after_s, dict.fromkeys(sorted(drained), MachineState.DRAINING))
    usage = usage_of(simulation)
    assert usage.gpus == 32 == usage.guaranteed + usage.opportunistic + usage.idle + usage.out_of_use
    assert usage.guaranteed == sum(tenant.guaranteed for tenant in usage.tenants)
    assert usage.opportunistic == sum(tenant.opportunistic for tenant in usage.tenants)
    held = {
        (placement.machine, gpu)
        for work in simulation.world.live.values()
        for placement in work.placements
        for gpu in placement.gpu_indices
    }
    assert usage.guaranteed + usage.opportunistic == len(held)
    assert usage.out_of_use == 8 * len(drained) - sum(machine in drained for machine, _ in held)
    for level in usage.levels:
        assert level.owned == level.used + level.free + level.bad
        assert min(level.used, level.free, level.bad) >= 0
    for tenant in usage.tenants:
        own = [level for level in usage.levels if str(level.virtual_cluster) == tenant.tenant]
        assert tenant.owned == sum(level.owned * level.gpus_per_cell for level in own)
        assert tenant.guaranteed <= sum(level.used * level.gpus_per_cell for level in own)
        assert tenant.downgraded <= tenant.opportunistic


def test_cells_are_used_free_or_bad() -> None:
    rows = [row("a1", 0.0, 1000.0, 4, "a"), row("b1", 1.0, 1000.0, 8, "b"), row("guest", 2.0, 1000.0, 2, "low")]
    usage = usage_of(stopped(rows, 10.0))
    shown = [(one.virtual_cluster, one.level, one.owned, one.used, one.free, one.bad) for one in usage.levels]
    assert shown == [("a", "machine", 2, 1, 1, 0), ("b", "machine", 1, 1, 0, 0), ("b", "socket", 1, 0, 1, 0)]
    assert [(one.tenant, one.owned, one.guaranteed, one.opportunistic) for one in usage.tenants] == [
        ("a", 16, 4, 0),
        ("b", 12, 8, 0),
        ("low", 0, 0, 2),
    ]
    assert (usage.guaranteed, usage.opportunistic, usage.idle, usage.out_of_use) == (12, 2, 18, 0)


def test_a_cell_is_bad_where_there_is_no_hardware_for_it() -> None:
    down = dict.fromkeys(("m1", "m2", "m3"), MachineState.DOWN)
    usage = usage_of(stopped([row("a1", 0.0, 1000.0, 4, "a")], 10.0, down))
    shown = [(one.virtual_cluster, one.level, one.owned, one.used, one.free, one.bad) for one in usage.levels]
    assert shown == [("a", "machine", 2, 1, 0, 1), ("b", "machine", 1, 0, 0, 1), ("b", "socket", 1, 0, 0, 1)]
    assert [(one.tenant, one.bad) for one in usage.tenants] == [("a", 8), ("b", 12)]
    assert (usage.idle, usage.out_of_use) == (4, 24)
