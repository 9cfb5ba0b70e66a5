"""What follows the trial of a job of unknown skew: it goes on on as few machines as it needs, or stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.skew.consolidation import consolidated
from cluster_manager.skew.spread import is_spread, most_gpus_of_machines
from domain.fleet import Cluster, MachineState, Rack, Region
from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, RackId, RegionId, TenantId, WorkloadId
from domain.model_profile import KnownSkew, SkewSource
from domain.placement import AttemptKey, Holding
from domain.placement_changes import ImpossibleAction
from domain.plan import Migrate
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.planner import plan_workload
from regional_scheduler.refusal import Refusal
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.requested_plans import AttemptToChange
from regional_scheduler.trial import jobs_above, plan_after_trial
from tests.cluster_manager.fleets import A100, gpu_machine

NORMAL = Standing(3, 0)
TRAIN, READ = JobName("train"), JobName("read")
LIMIT = 0.4
UP, DRAINING = MachineState.UP, MachineState.DRAINING


def region_of(gpus: list[int]) -> Region:
    machines = tuple(gpu_machine(f"m{number}", most, A100) for number, most in enumerate(gpus))
    return Region(RegionId("r"), (Cluster(ClusterId("c"), (Rack(RackId("k"), machines),)),))


def workload_of(*jobs: JobSpecification) -> Workload:
    return Workload(WorkloadId("w"), WorkloadSpecification("w", TenantId("t"), jobs), 0.0)


def job(tasks: int, gpus: int = 1, name: JobName = TRAIN) -> JobSpecification:
    return JobSpecification(name, tasks, TaskResources(gpus=gpus, cpus=1.0, memory_gib=1.0), Emulated(10.0))


def started(inventory: RegionCapacity, workload: Workload) -> AttemptToChange | None:
    """The workload begins to run there, if it fits."""
    found = plan_workload(inventory, workload, NORMAL, 0.0, within_quota=True)
    if isinstance(found, Refusal):
        return None
    key = AttemptKey(workload.workload, AttemptNumber(1))
    inventory.hold(Holding(key, NORMAL, 0.0, found.placements))
    return AttemptToChange(key, workload.specification, found.placements, True)


def fill(inventory: RegionCapacity, held: list[int]) -> None:
    """Others hold so many GPUs of each machine."""
    for number, gpus in enumerate(held):
        if gpus:
            other = Workload(WorkloadId(f"o{number}"), WorkloadSpecification("o", TenantId("t"), (job(gpus),)), 0.0)
            for machine in range(len(held)):
                if machine != number:
                    inventory.set_machine_state(MachineId(f"m{machine}"), DRAINING)
            found = plan_workload(inventory, other, NORMAL, 0.0, within_quota=True)
            for machine in range(len(held)):
                inventory.set_machine_state(MachineId(f"m{machine}"), UP)
            assert not isinstance(found, Refusal)
            inventory.hold(Holding(AttemptKey(other.workload, AttemptNumber(1)), NORMAL, 0.0, found.placements))


def known_as(attempt: AttemptToChange, skew: float) -> WorkloadSpecification:
    known = {job.name: KnownSkew(skew, SkewSource.REPORTED) for job in attempt.specification.jobs}
    return consolidated(attempt.specification, known, LIMIT)


def test_it_goes_on_where_all_of_it_is_on_one_machine() -> None:
    region = region_of([4, 4, 4, 4])
    inventory = RegionCapacity(region)
    fill(inventory, [3, 3, 3, 4])
    attempt = started(inventory, workload_of(job(3)))
    assert attempt is not None
    most_gpus = most_gpus_of_machines(region.clusters)
    with pytest.raises(ImpossibleAction, match="w cannot go on elsewhere"):
        plan_after_trial(inventory, attempt, known_as(attempt, 0.7), most_gpus, 5.0)
    inventory.release(AttemptKey(WorkloadId("o3"), AttemptNumber(1)))
    with pytest.raises(ImpossibleAction, match="no job of w is to be on fewer machines"):
        plan_after_trial(inventory, attempt, known_as(attempt, 0.3), most_gpus, 5.0)
    (action,) = plan_after_trial(inventory, attempt, known_as(attempt, 0.7), most_gpus, 5.0).actions
    assert isinstance(action, Migrate)
    assert {placement.machine for placement in action.placements} == {"m3"}


def test_what_asks_to_be_consolidated_by_itself_has_no_trial() -> None:
    asked = replace(job(3), consolidate=True)
    workload = workload_of(asked, job(2, name=READ))
    known = {name: KnownSkew(0.7, SkewSource.REPORTED) for name in (TRAIN, READ)}
    placed = consolidated(workload.specification, known, LIMIT)
    assert [one.name for one in jobs_above(workload.specification, placed)] == [READ]


@given(
    machines=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=2, max_size=7),
    tasks=st.integers(2, 5),
    skew=st.sampled_from([0.3, 0.5]),
)
def test_never_moves_to_more_machines_than_needed_nor_evicts(
    machines: list[tuple[int, int]], tasks: int, skew: float
) -> None:
    region = region_of([most for most, _ in machines])
    inventory = RegionCapacity(region)
    fill(inventory, [min(held, most) for most, held in machines])
    attempt = started(inventory, workload_of(job(tasks)))
    if attempt is None:
        return
    most_gpus = most_gpus_of_machines(region.clusters)
    before = [placement.machine for placement in attempt.placements]
    try:
        plan = plan_after_trial(inventory, attempt, known_as(attempt, skew), most_gpus, 5.0)
    except ImpossibleAction:
        return
    assert skew > LIMIT
    assert is_spread(1, before, most_gpus)
    (action,) = plan.actions
    assert isinstance(action, Migrate)
    after = [placement.machine for placement in action.placements]
    assert not is_spread(1, after, most_gpus)
    assert not set(before) & set(after)
    apply_plan(inventory, plan, 5.0)  # there is room for it beside all that runs
