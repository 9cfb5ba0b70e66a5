"""Which jobs are consolidated, and that these are never spread wider than they need."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.skew.consolidation import (
    ON_ONE_MACHINE,
    Consolidation,
    ConsolidationReason,
    consolidated,
    consolidation_of,
    consolidation_sentence,
)
from cluster_manager.skew.one_machine import OneMachine, one_machine_of
from domain.affinity import NO_JOB_AFFINITY, CellAffinity, JobAffinity
from domain.identifiers import JobName
from domain.model_profile import KnownSkew, ModelProfile, SkewSource
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification
from regional_scheduler.planner import Refusal, plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.fleets import (
    A100,
    H100,
    cluster,
    cpu_machine,
    gpu_machine,
    hold,
    key_of,
    region,
    tasks_on,
)
from tests.cluster_manager.inventory_worlds import workload_of

LIMIT = 0.4
GANG = JobSpecification(JobName("train"), 4, TaskResources(gpus=1), Emulated(60.0))
REPORTED = KnownSkew(0.7, SkewSource.REPORTED)
LOW = KnownSkew(0.1, SkewSource.OF_ITS_NAME)
PROFILE = ModelProfile(largest_tensor_mib=392.0, model_mib=548.1)


@pytest.mark.parametrize(
    ("job", "known", "consolidate", "reason", "sentence"),
    [
        (GANG, None, False, ConsolidationReason.UNKNOWN, "the skew of its model is not known yet"),
        (GANG, REPORTED, True, ConsolidationReason.ABOVE, "0.7 (reported by its own attempts) is above PACKLIMIT 0.4"),
        (GANG, REPORTED._replace(skew=0.4), False, ConsolidationReason.BELOW, "is not above PACKLIMIT 0.4"),
        (replace(GANG, consolidate=True), None, True, ConsolidationReason.ASKED, "it asks for that"),
        (replace(GANG, tasks=1), REPORTED, False, ConsolidationReason.ALONE, "not several tasks with GPUs"),
        (replace(GANG, tasks=1, max_tasks=2), REPORTED, True, ConsolidationReason.ABOVE, "is above"),
        (replace(GANG, profile=PROFILE), None, True, ConsolidationReason.ABOVE, "0.715 (declared) is above"),
        (replace(GANG, profile=ModelProfile(0.1)), REPORTED, False, ConsolidationReason.BELOW, "0.1 (declared)"),
        (
            GANG,
            KnownSkew(0.9, SkewSource.OF_ITS_NAME),
            True,
            ConsolidationReason.ABOVE,
            "0.9 (reported by an earlier workload of its name)",
        ),
    ],
)
def test_decides_by_the_skew_and_says_why(
    job: JobSpecification, known: KnownSkew | None, consolidate: bool, reason: ConsolidationReason, sentence: str
) -> None:
    decided = consolidation_of(job, known, LIMIT)
    assert (decided.consolidate, decided.reason) == (consolidate, reason)
    assert sentence in consolidation_sentence(decided, LIMIT)
    assert consolidation_sentence(decided, LIMIT).startswith("consolidated" if consolidate else "not consolidated")


def test_a_workload_is_placed_with_what_is_decided_for_each_of_its_jobs() -> None:
    specification = workload_of("w", GANG, GANG, GANG).specification
    placed = consolidated(specification, {JobName("job-1"): REPORTED, JobName("job-2"): LOW}, LIMIT)
    assert [job.consolidate for job in placed.jobs] == [False, True, False]
    assert [job.fills_fragments for job in placed.jobs] == [False, False, True]
    assert replace(placed, jobs=specification.jobs) == specification


def test_work_of_unknown_skew_stays_the_very_same_object() -> None:
    specification = workload_of("w", GANG, replace(GANG, tasks=1)).specification
    assert consolidated(specification, {JobName("job-1"): REPORTED}, LIMIT) is specification
    assert consolidated(specification, {}, 0.0) is specification


def test_with_waiting_a_job_that_fits_on_one_machine_must_be_on_one() -> None:
    four = OneMachine([gpu_machine("m", 4)])
    above, below = replace(GANG, profile=PROFILE), replace(GANG, profile=ModelProfile(0.1))
    larger = replace(above, tasks=5)
    said = JobAffinity(CellAffinity("rack", hard=False))
    specification = workload_of("w").specification
    jobs = (above, below, larger, replace(above, affinity=said))
    placed = consolidated(replace(specification, jobs=jobs), {}, LIMIT, four)
    assert [job.affinity for job in placed.jobs] == [ON_ONE_MACHINE, NO_JOB_AFFINITY, NO_JOB_AFFINITY, said]
    assert [job.consolidate for job in placed.jobs] == [True, False, True, True]


@pytest.mark.parametrize(
    ("resources", "tasks", "fits"),
    [
        (TaskResources(gpus=1), 4, True),
        (TaskResources(gpus=1), 5, False),
        (TaskResources(gpus=2), 3, False),
        (TaskResources(gpus=1, gpu_model=H100), 4, True),
        (TaskResources(gpus=1, gpu_model=A100), 2, False),
        (TaskResources(gpus=1, cpus=12.0), 4, True),
        (TaskResources(gpus=1, cpus=12.5), 4, False),
        (TaskResources(gpus=1, memory_gib=129.0), 4, False),
    ],
)
def test_a_job_fits_on_one_machine_that_would_hold_all_its_tasks(
    resources: TaskResources, tasks: int, fits: bool
) -> None:
    machines = OneMachine([gpu_machine("m", 4), gpu_machine("small", 1, A100), cpu_machine("c", 1000.0)])
    for _ in range(2):
        assert machines.holds(replace(GANG, resources=resources, tasks=tasks)) == fits


def test_a_job_that_waits_starts_on_one_machine_or_not_at_all() -> None:
    here = region(cluster("c", [gpu_machine(name, 4) for name in ("m0", "m1", "m2")]))
    inventory = RegionCapacity(here)
    for name in ("m0", "m1", "m2"):
        hold(inventory, f"holder-{name}", tasks_on(name, range(2)), priority=0)
    workload = workload_of("w", GANG)
    jobs = (replace(GANG, profile=PROFILE),)
    specification = consolidated(replace(workload.specification, jobs=jobs), {}, LIMIT, one_machine_of([here]))
    waiting = replace(workload, specification=specification)
    assert isinstance(plan_workload(inventory, waiting, Standing(6, 0), 1.0, within_quota=False), Refusal)
    inventory.release(key_of("holder-m1"))
    plan = plan_workload(inventory, waiting, Standing(6, 0), 1.0, within_quota=False)
    assert isinstance(plan, Plan)
    assert {placement.machine for placement in plan.placements} == {"m1"}


def test_nobody_waits_in_regions_with_cells() -> None:
    plain = cluster("c", [gpu_machine("m0", 4)])
    assert one_machine_of([region(plain)]) is not None
    assert one_machine_of([region(plain, replace(plain, mechanism="cells"))]) is None


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=4),
    st.integers(2, 9),
    st.sampled_from([0.41, 0.9, 1.0]),
)
def test_never_spreads_a_job_above_the_limit_wider_than_it_needs(
    idle: list[list[int]], tasks: int, skew: float
) -> None:
    """Racks of machines of 4 GPUs, of which so many are idle: where one rack holds the job, it gets the fewest machines
    with which any rack holds it."""
    racks = [[f"r{rack}m{position}" for position in range(len(machines))] for rack, machines in enumerate(idle)]
    inventory = RegionCapacity(region(cluster("c", *[[gpu_machine(name, 4) for name in names] for names in racks])))
    for names, gpus in zip(racks, idle, strict=True):
        for name, count in zip(names, gpus, strict=True):
            if count < 4:
                hold(inventory, f"holder-{name}", tasks_on(name, range(4 - count)))
    job = replace(GANG, tasks=tasks, profile=ModelProfile(skew))
    workload = workload_of("w", GANG)
    specification = consolidated(replace(workload.specification, jobs=(job,)), {}, LIMIT)
    plan = plan_workload(
        inventory, replace(workload, specification=specification), Standing(6, 0), 1.0, within_quota=False
    )
    fewest = [found for machines in idle if (found := fewest_machines(machines, tasks)) is not None]
    if fewest:
        assert isinstance(plan, Plan)
        assert len(Counter(placement.machine for placement in plan.placements)) == min(fewest)


def fewest_machines(idle: list[int], tasks: int) -> int | None:
    """On how many machines of one rack so many tasks fit at least; None where they do not."""
    count = 0
    for gpus in sorted(idle, reverse=True):
        if tasks <= 0:
            break
        tasks -= gpus
        count += 1
    return None if tasks > 0 else count


def test_the_reason_of_a_decision_is_one_of_those_that_can_be_counted() -> None:
    decided = consolidation_of(GANG, REPORTED, LIMIT)
    assert decided == Consolidation(True, ConsolidationReason.ABOVE, REPORTED)
    assert decided.reason == "above_packlimit"
