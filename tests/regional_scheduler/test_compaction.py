"""Room for gangs: small attempts move together, within the limits of the rule, and the gang fits when they have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.affinity import CellAffinity, JobAffinity
from domain.compaction import CompactionRule
from domain.eviction import HOUR_S
from domain.fleet import Cluster, MachineState, Rack, Region
from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, RackId, RegionId, TenantId, WorkloadId
from domain.placement import AttemptKey, Holding
from domain.plan import Migrate
from domain.rank import Standing
from domain.resources import TaskResources
from domain.tenant import LOWEST_PRIORITY
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from regional_scheduler.compaction import (
    MOST_KINDS,
    RunningAttempt,
    WaitingGang,
    first_of_each_kind,
    may_be_moved,
    plan_compactions,
    plan_intake,
    sources_of_intakes,
)
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.planner import plan_workload
from regional_scheduler.refusal import Refusal
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.requested_plans import AttemptToChange
from tests.cluster_manager.fleets import A100, gpu_machine

NOW = 10_000.0
RULE = CompactionRule()
NORMAL, EVICTS_NOTHING = Standing(3, 0), Standing(LOWEST_PRIORITY, 2**31)


def region_of(machines: int, gpus: int = 8, name: str = "") -> Region:
    each = tuple(gpu_machine(f"{name}m{number}", gpus, A100) for number in range(machines))
    return Region(RegionId(name or "r"), (Cluster(ClusterId(f"{name}c"), (Rack(RackId(f"{name}k"), each),)),))


def workload_called(name: str, tasks: int, gpus: int) -> Workload:
    job = JobSpecification(JobName("main"), tasks, TaskResources(gpus=gpus, cpus=1.0, memory_gib=1.0), Emulated(10.0))
    return Workload(WorkloadId(name), WorkloadSpecification(name, TenantId("t"), (job,)), 0.0)


def running_on(inventory: RegionCapacity, machines: list[list[int]]) -> list[RunningAttempt]:
    """On each machine attempts of so many GPUs, each with a checkpoint of a minute ago."""
    found = []
    for number, held in enumerate(machines):
        for place, gpus in enumerate(held):
            workload = workload_called(f"w{number}-{place}", 1, gpus)
            for other in range(len(machines)):
                state = MachineState.UP if other == number else MachineState.DRAINING
                inventory.set_machine_state(MachineId(f"m{other}"), state)
            plan = plan_workload(inventory, workload, EVICTS_NOTHING, 0.0, within_quota=True)
            if isinstance(plan, Refusal):
                continue
            key = AttemptKey(workload.workload, AttemptNumber(1))
            inventory.hold(Holding(key, NORMAL, 0.0, plan.placements))
            attempt = AttemptToChange(key, workload.specification, plan.placements, True)
            found.append(RunningAttempt(attempt, 60.0))
    for other in range(len(machines)):
        inventory.set_machine_state(MachineId(f"m{other}"), MachineState.UP)
    return found


def gang(tasks: int, gpus: int, waited_s: float = HOUR_S, name: str = "gang") -> WaitingGang:
    return WaitingGang(workload_called(name, tasks, gpus), within_quota=True, waited_s=waited_s)


def test_the_fewest_gpus_move_off_the_emptiest_machine() -> None:
    inventory = RegionCapacity(region_of(3))
    running = running_on(inventory, [[4, 1], [2, 1], [4, 3]])
    (found,) = plan_compactions(inventory, [gang(1, 8)], running, RULE, NOW)
    assert [key.workload for key in found.moved] == ["w1-0", "w1-1"]
    assert (found.machines, found.moved_gpus, found.cost_gpu_s, found.gain_gpu_s) == (("m1",), 3, 3 * 213.0, 8 * HOUR_S)
    assert found.sentence == (
        "2 attempts of 3 GPUs go on elsewhere in r to make room for gang: 28800 GPU-seconds for 639"
    )


def test_one_attempt_of_one_gpu_is_not_called_many() -> None:
    inventory = RegionCapacity(region_of(2, gpus=2))
    running = running_on(inventory, [[1], [1]])
    (found,) = plan_compactions(inventory, [gang(1, 2)], running, RULE, NOW)
    assert found.sentence.startswith("1 attempt of 1 GPU goes on elsewhere in r to make room for gang: ")


def test_of_gangs_that_ask_for_the_same_the_first_is_looked_at_and_none_in_the_name_of_one_that_asks_for_more() -> None:
    first = gang(2, 4, name="first")
    (job,) = first.workload.specification.jobs
    together = replace(job, affinity=JobAffinity(CellAffinity("machine")))
    closer = Workload(WorkloadId("closer"), replace(first.workload.specification, jobs=(together,)), 0.0)
    gangs = [first._replace(workload=closer), first, gang(2, 4, name="second"), first._replace(within_quota=False)]
    found = first_of_each_kind(gangs)
    assert [(one.workload.workload, one.within_quota) for one in found] == [
        ("closer", True),
        ("first", True),
        ("first", False),
    ]
    assert len(first_of_each_kind(gang(tasks, 1) for tasks in range(1, 100))) == MOST_KINDS


def test_a_gang_is_worth_as_long_as_it_has_waited() -> None:
    inventory = RegionCapacity(region_of(2))
    running = running_on(inventory, [[4], [4]])
    assert plan_compactions(inventory, [gang(1, 8, waited_s=100.0)], running, RULE, NOW) == []
    assert len(plan_compactions(inventory, [gang(1, 8, waited_s=110.0)], running, RULE, NOW)) == 1
    short = replace(RULE, longest_wait_s=100.0)
    assert plan_compactions(inventory, [gang(1, 8)], running, short, NOW) == []


def test_what_may_not_move_stays() -> None:
    inventory = RegionCapacity(region_of(2))
    one, other = running_on(inventory, [[4], [4]])
    for kept in (
        one._replace(checkpoint_age_s=None),
        one._replace(checkpoint_age_s=RULE.checkpoint_within_s + 1.0),
        one._replace(moved_s=(NOW - HOUR_S + 1.0,)),
    ):
        assert not may_be_moved(kept, RULE, NOW)
        (found,) = plan_compactions(inventory, [gang(1, 8)], [kept, other], RULE, NOW)
        assert found.moved == (other.attempt.key,)
    assert may_be_moved(one._replace(moved_s=(NOW - HOUR_S,)), RULE, NOW)
    assert plan_compactions(inventory, [gang(1, 8)], [one, other], replace(RULE, most_gpus=3), NOW) == []


def test_gangs_do_not_count_on_one_place() -> None:
    inventory = RegionCapacity(region_of(4))
    running = running_on(inventory, [[4], [4], [4], [4]])
    found = plan_compactions(
        inventory, [gang(1, 8), gang(1, 8, name="other"), gang(1, 8, name="third")], running, RULE, NOW
    )
    assert [one.plan.workload for one in found] == ["gang", "other"]
    assert not set(found[0].machines) & set(found[1].machines)
    assert len(plan_compactions(inventory, [gang(1, 8), gang(2, 8)], running, replace(RULE, gangs_at_once=1), NOW)) == 1


def idle_in(region: str, gpus: int) -> RegionCapacity:
    """A region of one machine with so many idle GPUs."""
    inventory = RegionCapacity(region_of(1, name=region))
    if gpus < 8:
        workload = workload_called("stays", 1, 8 - gpus)
        plan = plan_workload(inventory, workload, EVICTS_NOTHING, 0.0, within_quota=True)
        assert not isinstance(plan, Refusal)
        inventory.hold(Holding(AttemptKey(workload.workload, AttemptNumber(1)), NORMAL, 0.0, plan.placements))
    return inventory


def test_what_a_gang_lacks_goes_on_in_another_region() -> None:
    source, into = RegionCapacity(region_of(2)), idle_in("west", 3)
    running = running_on(source, [[4, 3], [8]])
    found = plan_intake(into, source, [gang(1, 8)], running[:1], RULE, NOW)
    assert found is None  # 4 GPUs find no place there
    found = plan_intake(into, source, [gang(1, 4, name="small")], running, RULE, NOW)
    assert found is not None
    assert [(found.plan.region, found.makes_room_in, found.machines, found.moved_gpus)] == [("west", "r", ("m0",), 3)]
    assert (
        found.sentence == "1 attempt of 3 GPUs goes on in west to make room for small in r: 14400 GPU-seconds for 639"
    )
    assert into.idle_gpus == 3
    assert source.idle_gpus == 1


def test_a_gang_that_lacks_no_gpus_is_the_regions_own_affair() -> None:
    source, into = RegionCapacity(region_of(2)), idle_in("west", 8)
    running = running_on(source, [[4], [4]])
    assert plan_intake(into, source, [gang(1, 8)], running, RULE, NOW) is None
    assert plan_intake(into, source, [gang(2, 8)], running, RULE, NOW) is not None
    assert plan_intake(into, source, [gang(2, 8)], running, replace(RULE, most_gpus=3), NOW) is None
    assert plan_intake(into, source, [gang(2, 8, waited_s=106.0)], running, RULE, NOW) is None
    assert plan_intake(into, source, [gang(2, 8, waited_s=107.0)], running, RULE, NOW) is not None
    assert plan_intake(into, source, [gang(3, 8)], running, RULE, NOW) is None


def test_regions_that_lack_the_fewest_gpus_come_first_and_none_where_a_region_has_enough() -> None:
    east, north, west = RegionId("east"), RegionId("north"), RegionId("west")
    idle = {north: 5, west: 3, east: 5}
    assert sources_of_intakes([8], idle, None) == [east, north, west]
    assert sources_of_intakes([8], idle, west) == [east, north]
    assert sources_of_intakes([8], idle, north) == [east, west]
    assert sources_of_intakes([5, 11], idle, None) == []
    assert sources_of_intakes([11, 10], idle, east) == [north]
    assert sources_of_intakes([8], {}, None) == []


@pytest.mark.parametrize("changes", [{"most_gpus": 0}, {"restart_s": -1.0}, {"moves_per_workload_and_hour": 0}])
def test_limits_that_make_no_sense_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        CompactionRule(**changes)  # type: ignore[arg-type]  # fields by name


@given(
    st.lists(st.lists(st.integers(1, 6), max_size=4), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(1, 2), st.sampled_from([4, 8]), st.floats(0.0, 2 * HOUR_S)), min_size=1, max_size=3),
    st.data(),
)
def test_never_against_the_rule_and_the_gangs_fit_when_all_have_moved(
    machines: list[list[int]], gangs: list[tuple[int, int, float]], data: st.DataObject
) -> None:
    inventory = RegionCapacity(region_of(len(machines)))
    ages = st.sampled_from([None, 60.0, 1_800.0, 1_801.0])
    moved = st.sampled_from([(), (NOW - HOUR_S,), (NOW - 5.0,)])
    running = [
        one._replace(checkpoint_age_s=data.draw(ages), moved_s=data.draw(moved))
        for one in running_on(inventory, machines)
    ]
    waiting = [gang(tasks, gpus, waited_s, f"gang{place}") for place, (tasks, gpus, waited_s) in enumerate(gangs)]
    before = inventory.holdings()
    found = plan_compactions(inventory, waiting, running, RULE, NOW)
    assert inventory.holdings() == before
    by_key = {one.attempt.key: one for one in running}
    for one in found:
        assert one.gain_gpu_s > one.cost_gpu_s
        assert all(isinstance(action, Migrate) and action.room_for == one.plan.workload for action in one.plan.actions)
        assert all(may_be_moved(by_key[key], RULE, NOW) for key in one.moved)
        apply_plan(inventory, one.plan, NOW)
    moving = [key for one in found for key in one.moved]
    assert len(set(moving)) == len(moving)
    inventory.check()
    for key in moving:
        inventory.release(key)
    for one in found:
        (wanted,) = [each for each in waiting if each.workload.workload == one.plan.workload]
        plan = plan_workload(inventory, wanted.workload, EVICTS_NOTHING, NOW, within_quota=True)
        assert not isinstance(plan, Refusal)
        inventory.hold(Holding(AttemptKey(wanted.workload.workload, AttemptNumber(1)), NORMAL, NOW, plan.placements))


@given(
    st.lists(st.lists(st.integers(1, 6), max_size=4), min_size=1, max_size=5),
    st.integers(0, 8),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([4, 8]), st.floats(0.0, 2 * HOUR_S)), min_size=1, max_size=3),
    st.data(),
)
def test_between_regions_never_against_the_rule_and_the_gang_fits_when_all_have_moved(
    machines: list[list[int]], idle_gpus: int, gangs: list[tuple[int, int, float]], data: st.DataObject
) -> None:
    source, into = RegionCapacity(region_of(len(machines))), idle_in("west", idle_gpus)
    ages = st.sampled_from([None, 60.0, 1_801.0])
    running = [one._replace(checkpoint_age_s=data.draw(ages)) for one in running_on(source, machines)]
    waiting = [gang(tasks, gpus, waited_s, f"gang{place}") for place, (tasks, gpus, waited_s) in enumerate(gangs)]
    before = source.holdings(), into.holdings()
    found = plan_intake(into, source, waiting, running, RULE, NOW)
    assert (source.holdings(), into.holdings()) == before
    if found is None:
        return
    by_key = {one.attempt.key: one for one in running}
    assert found.gain_gpu_s > found.cost_gpu_s
    assert all(may_be_moved(by_key[key], RULE, NOW) for key in found.moved)
    apply_plan(into, found.plan, NOW)
    for key in found.moved:
        source.release(key)
    source.check()
    into.check()
    (wanted,) = [each for each in waiting if each.workload.workload == found.plan.workload]
    plan = plan_workload(source, wanted.workload, EVICTS_NOTHING, NOW, within_quota=True)
    assert not isinstance(plan, Refusal)
    assert {placement.machine for placement in plan.placements} <= set(found.machines) | set(source.number_of_machine)
