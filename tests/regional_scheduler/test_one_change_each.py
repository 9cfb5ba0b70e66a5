"""Retunes become one change for each attempt, in an order in which each is possible."""

from __future__ import annotations

from domain.fleet import Cluster, Machine, Rack, Region
from domain.identifiers import AttemptNumber, ClusterId, GpuModel, JobName, MachineId, RackId, RegionId, WorkloadId
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.plan import Action, Retune, TaskAmounts, TaskName
from domain.rank import Standing
from regional_scheduler.one_change_each import one_change_each
from regional_scheduler.region_capacity import RegionCapacity

MAIN = TaskName(JobName("main"), 0)
A, B, C = (AttemptKey(WorkloadId(name), AttemptNumber(1)) for name in "abc")


def region(**held: tuple[int, int]) -> RegionCapacity:
    """One machine with 8 CPUs and 8 GiB, and what attempts with a GPU each hold there, in CPUs and GiB."""
    machine = Machine(MachineId("m"), GpuModel("A100"), 4, 8.0, 8.0)
    cluster = Cluster(ClusterId("c"), (Rack(RackId("r"), (machine,)),))
    capacity = RegionCapacity(Region(RegionId("east"), (cluster,)))
    for gpu, (name, (cpus, gib)) in enumerate(held.items()):
        placed = TaskPlacement(MAIN.job, MAIN.task, cluster.cluster, machine.machine, (gpu,), 1000 * cpus, 1024 * gib)
        key = AttemptKey(WorkloadId(name), AttemptNumber(1))
        capacity.hold(Holding(key, Standing(3, 0), 0.0, (placed,)))
    return capacity


def retune(key: AttemptKey, cpus: int, gib: int) -> Retune:
    return Retune(key, (TaskAmounts(MAIN, 1000 * cpus, 1024 * gib),))


def as_amounts(actions: tuple[Action, ...]) -> list[tuple[str, int, int]]:
    found = []
    for action in actions:
        assert isinstance(action, Retune)
        (only,) = action.amounts
        found.append((str(action.attempt.workload), only.millicpus // 1000, only.mebibytes // 1024))
    return found


def test_what_one_releases_and_takes_is_one_change() -> None:
    capacity = region(a=(4, 4), b=(4, 4))
    # B releases memory and then takes CPUs, which A must release first.
    actions = [retune(A, 2, 4), retune(B, 4, 2), retune(A, 2, 6), retune(B, 6, 2)]
    # A can only get its memory when B has released it, and B its CPUs when A has: neither can be first.
    assert one_change_each(capacity, actions, 0.0) == ()
    actions = [retune(A, 2, 4), retune(B, 4, 2), retune(B, 6, 2)]
    assert as_amounts(one_change_each(capacity, actions, 0.0)) == [("a", 2, 4), ("b", 6, 2)]
    capacity.check()


def test_who_takes_comes_after_those_who_release() -> None:
    capacity = region(a=(2, 2), b=(3, 2), c=(3, 4))
    actions = [retune(A, 5, 2), retune(B, 2, 2), retune(C, 1, 3)]
    assert as_amounts(one_change_each(capacity, actions, 0.0)) == [("b", 2, 2), ("c", 1, 3), ("a", 5, 2)]


def test_an_exchange_both_ways_is_left_out_and_the_rest_is_done() -> None:
    capacity = region(a=(4, 2), b=(2, 4), c=(2, 2))
    actions = [retune(A, 2, 4), retune(B, 4, 2), retune(C, 1, 1)]
    assert as_amounts(one_change_each(capacity, actions, 0.0)) == [("c", 1, 1)]
