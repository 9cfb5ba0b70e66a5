"""What a mechanism of a package does wrong refuses a place, and ends nothing."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.released_capacity import ReleasedCapacity
from cluster_manager.guarded_mechanism import MOST_REMEMBERED, MechanismFailure
from cluster_manager.mechanism import Place, Query, Shortfall
from cluster_manager.mechanisms import MECHANISMS
from data_placement.catalog import Catalog
from domain.identifiers import JobName
from domain.placement import AttemptKey
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.first_fit import FirstFit
from tests.cluster_manager.fleets import cluster, gpu_machine, hold, key_of, region, tasks_on
from tests.cluster_manager.inventory_worlds import workload_of

BEST = Standing(0, 0)
UNLUCKY = 3
"""Tasks for which the mechanism fails."""
BROKEN = replace(cluster("broken", [gpu_machine("b0"), gpu_machine("b1")]), mechanism="broken")
PACKED = cluster("packed", [gpu_machine("p0")])


ON_B1 = tasks_on("b1", gpus=range(8))._replace(cluster=BROKEN.cluster)


class Broken(FirstFit):
    """First fit, but for jobs of three tasks; nor does it know anything else of these."""

    def find(self, query: Query, view: ClusterCapacity) -> Place | Shortfall:
        if query.tasks == UNLUCKY:
            view.suppose_released(key_of("held"))
            raise ZeroDivisionError("division by zero")
        return super().find(query, view)

    def same_answer_key(self, query: Query, view: ClusterCapacity) -> Hashable:
        if query.tasks == UNLUCKY:
            raise KeyError(query.tasks)
        return super().same_answer_key(query, view)

    def refusal_scope(self, query: Query, view: ClusterCapacity) -> Hashable:
        return []  # type: ignore[return-value]  # what is tested

    def required_victims(self, query: Query, victims: Sequence[AttemptKey], view: ClusterCapacity) -> tuple[bool, ...]:
        raise LookupError

    def capacity_after(self, query: Query, capacity: int, released: ReleasedCapacity) -> int:
        raise ValueError


class GivesNothing(FirstFit):
    """It forgets to answer."""

    def find(self, query: Query, view: ClusterCapacity) -> Place | Shortfall:
        return None  # type: ignore[return-value]  # what is tested


def capacity_with(*mechanisms: type[FirstFit]) -> RegionCapacity:
    made = {**MECHANISMS, "broken": lambda _view: mechanisms[0]()}
    return RegionCapacity(region(BROKEN, PACKED) if len(mechanisms) == 1 else region(BROKEN), mechanisms=made)


def of_tasks(tasks: int, gpus: int = 1) -> Workload:
    return workload_of("w", JobSpecification(JobName("job"), tasks, TaskResources(gpus=gpus), Emulated(1.0)))


def test_a_mechanism_that_raises_refuses_the_place_and_others_find_theirs() -> None:
    capacity = capacity_with(Broken)
    hold(capacity, "held", ON_B1)
    plan = plan_workload(capacity, of_tasks(UNLUCKY), BEST, 0.0, within_quota=True)
    assert isinstance(plan, Plan)
    assert {placement.cluster for placement in plan.placements} == {"packed"}
    capacity.check()
    failures = capacity.faults.take_mechanism_failures()
    assert MechanismFailure(BROKEN.cluster, "broken", "find", "ZeroDivisionError: division by zero") in failures
    assert {failure.asked for failure in failures} == {"same_answer_key", "find"}
    other = plan_workload(capacity, of_tasks(UNLUCKY + 1), BEST, 0.0, within_quota=True)
    assert isinstance(other, Plan)


def test_a_failure_is_told_once() -> None:
    capacity = capacity_with(Broken, Broken)
    for _ in range(3):
        assert not isinstance(plan_workload(capacity, of_tasks(UNLUCKY), BEST, 0.0, within_quota=True), Plan)
        hold(capacity, "held", ON_B1)
        capacity.release(key_of("held"))
    assert len(capacity.faults.take_mechanism_failures()) == 2
    assert capacity.faults.take_mechanism_failures() == []


def test_what_is_no_answer_is_a_failure() -> None:
    capacity = capacity_with(GivesNothing, GivesNothing)
    assert not isinstance(plan_workload(capacity, of_tasks(1), BEST, 0.0, within_quota=True), Plan)
    (failure,) = capacity.faults.take_mechanism_failures()
    assert failure.error == "TypeError: gave NoneType, which is neither a Place nor a Shortfall"


def test_never_is_a_failure_remembered_as_a_refusal_of_others() -> None:
    """A larger job of the same scope is asked about: nothing may ever be released in the idle cluster."""
    capacity = capacity_with(Broken, Broken)
    bidder = RegionBidder(region(BROKEN), capacity, Catalog(()))
    plan = plan_workload(capacity, of_tasks(UNLUCKY), BEST, 0.0, within_quota=True)
    assert not isinstance(plan, Plan)
    bidder.refusals.remember(of_tasks(UNLUCKY), BEST, plan, 0.0, within_quota=True)
    assert len(bidder.refusals) == 0
    assert isinstance(plan_workload(capacity, of_tasks(UNLUCKY + 1), BEST, 0.0, within_quota=True), Plan)


def test_it_remembers_so_many_failures_only() -> None:
    class Chatty(FirstFit):
        asked = 0

        def find(self, query: Query, view: ClusterCapacity) -> Place | Shortfall:
            self.asked += 1
            raise RuntimeError(f"number {self.asked}")

    capacity = capacity_with(Chatty, Chatty)
    for tasks in range(1, MOST_REMEMBERED + 10):
        hold(capacity, "held", ON_B1)
        capacity.release(key_of("held"))
        plan_workload(capacity, of_tasks(1 + tasks % 2), BEST, 0.0, within_quota=True)
    assert len(capacity.faults.take_mechanism_failures()) == MOST_REMEMBERED


def test_topmasts_own_mechanisms_are_not_guarded() -> None:
    capacity = RegionCapacity(region(PACKED))
    assert type(capacity.mechanisms[0]).__name__ == "Packing"
