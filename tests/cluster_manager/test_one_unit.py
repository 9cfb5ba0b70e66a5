"""Packing where all tasks must be on one machine, or in one rack: nothing is refused that such a place exists for."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.mechanism import Affinity, AffinityLevel, Place, Query, Shortfall
from domain.affinity import CellAffinity, JobAffinity, TaskGroup
from domain.fleet import MachineState, Region
from domain.identifiers import JobName, TenantId
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification
from regional_scheduler.planner import plan_workload
from regional_scheduler.queries import affinity_of, query_of
from regional_scheduler.refusal import Refusal
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.fleets import cluster, gpu_machine, hold, region, tasks_on
from tests.cluster_manager.inventory_worlds import Step, World, jobs, regions, standings, steps, workload_of
from tests.examples import examples

MACHINE, RACK = AffinityLevel.MACHINE, AffinityLevel.RACK


def units(capacity: RegionCapacity, position: int, level: AffinityLevel) -> list[set[int]]:
    """The machines of every machine or rack of a cluster, by their rows."""
    view = capacity.clusters[position]
    if level is MACHINE:
        return [{row} for row in range(len(view.layout.machine_ids))]
    racks: dict[int, set[int]] = {}
    for row, fixed in enumerate(view.arrays.fixed.tolist()):
        racks.setdefault(fixed[1], set()).add(row)
    return list(racks.values())


def answers_by_unit(capacity: RegionCapacity, position: int, query: Query) -> list[Place | Shortfall]:
    """What the cluster answers to the query without affinity while every machine outside of one unit is down."""
    view, answers = capacity.clusters[position], []
    for unit in units(capacity, position, query.affinity.level):
        with capacity.tentatively():
            for row, machine in enumerate(view.layout.machine_ids):
                if row not in unit:
                    capacity.set_machine_state(machine, MachineState.DOWN)
            answers.append(capacity.ask(position, query._replace(affinity=query.affinity._replace(hard=False))))
    return answers


@settings(max_examples=examples(120))
@given(regions(), steps(), jobs(6), standings(), st.sampled_from((MACHINE, RACK)), st.booleans())
def test_never_refuses_what_one_unit_could_hold(
    described: Region, history: list[Step], job: JobSpecification, standing: Standing, level: AffinityLevel, evict: bool
) -> None:
    world = World(described, RegionCapacity(described))
    for step in history:
        world.take(step)
    capacity = world.inventory
    query = query_of(capacity, job, TenantId("t"), standing, 0.0, within_quota=True)
    query = query._replace(affinity=Affinity(level, hard=True), may_evict=evict)
    for position in range(len(capacity.clusters)):
        found = capacity.ask(position, query)
        alone = answers_by_unit(capacity, position, query)
        assert isinstance(found, Place) is any(isinstance(answer, Place) for answer in alone)
        if isinstance(found, Shortfall):
            if evict:
                assert found.capacity == max(answer.capacity for answer in alone if isinstance(answer, Shortfall))
            continue
        rows = set(found.tasks[:, 0].tolist())
        assert any(rows <= unit for unit in units(capacity, position, level))
        assert len(found.tasks) == job.tasks
        assert found.victims == () or all(standing < victim.standing for victim in found.victims)
        free_somewhere = any(isinstance(answer, Place) and not answer.victims for answer in alone)
        assert not (found.victims and free_somewhere)
    capacity.check()


def asking(tasks: int, gpus: int, affinity: JobAffinity) -> JobSpecification:
    return JobSpecification(
        JobName("job"), tasks, TaskResources(gpus=gpus, cpus=1.0, memory_gib=1.0), Emulated(1.0), affinity=affinity
    )


def within(level: str, *, hard: bool = True) -> JobAffinity:
    return JobAffinity(CellAffinity(level, hard))


def two_racks() -> RegionCapacity:
    return RegionCapacity(
        region(cluster("c", [gpu_machine("a0"), gpu_machine("a1")], [gpu_machine("b0"), gpu_machine("b1")]))
    )


def plan(capacity: RegionCapacity, job: JobSpecification, priority: int = 1) -> Plan | Refusal:
    workload = workload_of("w", job)
    named = (replace(workload.specification.jobs[0], affinity=job.affinity),)
    workload = replace(workload, specification=replace(workload.specification, jobs=named))
    return plan_workload(capacity, workload, Standing(priority, 0), 0.0, within_quota=True)


def test_a_gang_within_one_machine_evicts_on_one_machine_only() -> None:
    capacity = two_racks()
    for machine in ("a0", "a1", "b0", "b1"):
        hold(capacity, f"on-{machine}", tasks_on(machine, range(5), cluster_name="c"), priority=5)
    assert isinstance(plan(capacity, asking(2, 3, within("machine", hard=False))), Plan)
    held = plan(capacity, asking(2, 3, within("machine")))
    assert isinstance(held, Plan)
    assert len(held.evictions) == 1
    assert len({placement.machine for placement in held.placements}) == 1
    refused = plan(capacity, asking(2, 3, within("machine")), priority=5)
    assert isinstance(refused, Refusal)
    assert refused.room == (1,)


def test_a_gang_within_one_rack_waits_rather_than_be_spread() -> None:
    capacity = two_racks()
    hold(capacity, "left", tasks_on("a0", range(8), cluster_name="c"), priority=0)
    hold(capacity, "right", tasks_on("b0", range(8), cluster_name="c"), priority=0)
    assert isinstance(plan(capacity, asking(2, 8, JobAffinity())), Plan)
    refused = plan(capacity, asking(2, 8, within("rack")))
    assert isinstance(refused, Refusal)
    assert refused.diagnosis.numbers[0].available == 1


def test_packing_has_no_other_cells() -> None:
    capacity = two_racks()
    pairs = JobAffinity(groups=(TaskGroup(2, CellAffinity("machine"), count=2),))
    for affinity in (within("switch"), pairs, JobAffinity(pinned_cell="corner")):
        assert isinstance(plan(capacity, asking(4, 1, affinity)), Refusal)
    preferred = JobAffinity(groups=(TaskGroup(2, CellAffinity("machine", hard=False), count=2),))
    for affinity in (within("switch", hard=False), preferred, JobAffinity(yields_to_downgrade=True)):
        assert isinstance(plan(capacity, asking(4, 1, affinity)), Plan)


def test_to_be_consolidated_is_to_be_preferably_within_one_machine() -> None:
    plain = asking(4, 1, JobAffinity())
    assert affinity_of(replace(plain, consolidate=True)) == affinity_of(asking(4, 1, within("machine", hard=False)))
