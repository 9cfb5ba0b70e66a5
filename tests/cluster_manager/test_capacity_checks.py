"""What checks the capacities of all tests finds an array that is out of order."""

from __future__ import annotations

import pytest

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.errors import InvariantBroken
from cluster_manager.capacity.tables import MILLICPUS
from domain.placement import AttemptKey, Holding
from domain.rank import Standing
from tests.capacity_checks import FIRST_ALLOWANCE, CapacityChecks
from tests.cluster_manager.fleets import cluster, cpu_machine, key_of, tasks_on


def small_cluster() -> ClusterCapacity:
    return ClusterCapacity(cluster("c", [cpu_machine("m0"), cpu_machine("m1")]))


def hold(capacity: ClusterCapacity, name: str) -> AttemptKey:
    holding = Holding(key_of(name), Standing(5, 0), 0.0, (tasks_on("m0", cpus=0.001),))
    capacity.hold(holding)
    return holding.key


@pytest.mark.breaks_capacity
def test_never_is_an_array_out_of_order_after_a_change(capacity_checks: CapacityChecks) -> None:
    capacity_checks.begin(active=True)
    capacity = small_cluster()
    key = hold(capacity, "w")
    capacity.arrays.state[1, MILLICPUS] -= 1
    with pytest.raises(InvariantBroken, match="what is free"):
        capacity.begin_eviction(key)
    with pytest.raises(InvariantBroken, match="what is free"):
        capacity_checks.end()


@pytest.mark.breaks_capacity
def test_never_is_an_array_out_of_order_after_an_undo(capacity_checks: CapacityChecks) -> None:
    capacity_checks.begin(active=True)
    capacity = small_cluster()
    hold(capacity, "w")
    trial = capacity.tentatively()
    trial.__enter__()
    hold(capacity, "v")
    capacity.arrays.state[1, MILLICPUS] -= 1
    with pytest.raises(InvariantBroken, match="what is free"):
        trial.__exit__(None, None, None)


def test_every_change_is_checked_until_there_are_thousands(capacity_checks: CapacityChecks) -> None:
    capacity = small_cluster()
    for number in range(50):
        hold(capacity, f"w{number}")
    assert (capacity_checks.changes, capacity_checks.checks) == (50, 50)
    for number in range(50, 1_000):
        hold(capacity, f"w{number}")
        capacity.release(key_of(f"w{number}"))
    assert 50 < capacity_checks.checks < FIRST_ALLOWANCE // 20
    assert capacity_checks.changes == 50 + 2 * 950


@pytest.mark.breaks_capacity
def test_a_test_that_breaks_capacities_is_left_alone(capacity_checks: CapacityChecks) -> None:
    capacity = small_cluster()
    key = hold(capacity, "w")
    capacity.arrays.state[1, MILLICPUS] -= 1
    capacity.release(key)
    assert capacity_checks.checks == 0
