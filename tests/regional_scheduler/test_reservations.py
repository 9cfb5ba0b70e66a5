"""Reservations: the earliest start against releasing one attempt after the other, the limits, and who is kept off."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_placement.catalog import Catalog
from domain.diagnosis import Reason
from domain.fleet import Cluster, MachineState, Rack, Region
from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, RackId, RegionId, TenantId, WorkloadId
from domain.placement import AttemptKey, Holding
from domain.plan import Plan
from domain.rank import QueuePosition, Standing
from domain.reservation import Reservation, ReservationEnd, ReservationLimits, ReservationRule
from domain.resources import TaskResources
from domain.workload import Command, Emulated, EntryPoint, JobSpecification, Workload, WorkloadSpecification
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.planner import plan_workload
from regional_scheduler.refusal import Refusal
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.reservations import ExpectedEnd, PatientGang, earliest_start, plan_reservations
from regional_scheduler.rounds import Lot
from regional_scheduler.run_time_class import NOT_KNOWN, SHORTEST_S, most_s, run_time_class
from tests.cluster_manager.fleets import A100, gpu_machine

NOW = 10_000.0
NORMAL, BETTER, WORSE = Standing(3, 0), Standing(2, 0), Standing(4, 0)
RULE = ReservationRule(ReservationLimits(after_s=100.0, at_most=2), least_gpus=4, start_up_s=0.0)
GANG = WorkloadId("gang")


def region_of(machines: int, clusters: int = 1) -> Region:
    return Region(
        RegionId("r"),
        tuple(
            Cluster(
                ClusterId(f"c{cluster}"),
                (Rack(RackId(f"k{cluster}"), tuple(gpu_machine(f"m{cluster}{n}", 4, A100) for n in range(machines))),),
            )
            for cluster in range(clusters)
        ),
    )


def workload(name: str, tasks: int, gpus: int, run_s: float = 1e6) -> Workload:
    job = JobSpecification(JobName("main"), tasks, TaskResources(gpus=gpus, cpus=1.0, memory_gib=1.0), Emulated(run_s))
    return Workload(WorkloadId(name), WorkloadSpecification(name, TenantId("t"), (job,)), 0.0)


def gang(
    tasks: int, gpus: int = 4, standing: Standing = NORMAL, name: str = "gang", waited_s: float = 200.0
) -> PatientGang:
    return PatientGang(workload(name, tasks, gpus), standing, within_quota=True, waited_s=waited_s)


def region_with(machines: int, clusters: int = 1) -> RegionCapacity:
    inventory = RegionCapacity(region_of(machines, clusters))
    inventory.reserved.begin_use(0.0)
    return inventory


def run_there(
    inventory: RegionCapacity, asked: list[tuple[int, float]], standing: Standing = NORMAL
) -> list[ExpectedEnd]:
    """Attempts of so many GPUs, as far as they fit, each with its end."""
    ends = []
    for number, (gpus, end_s) in enumerate(asked):
        plan = plan_workload(inventory, workload(f"w{number}", 1, gpus), standing, NOW, within_quota=True)
        if isinstance(plan, Plan):
            key = AttemptKey(WorkloadId(f"w{number}"), AttemptNumber(1))
            inventory.hold(Holding(key, standing, 0.0, plan.placements))
            ends.append(ExpectedEnd(end_s, key))
    return ends


def kept(machines: list[str], start_s: float = NOW + 2_000.0, standing: Standing = NORMAL) -> Reservation:
    names = tuple(MachineId(name) for name in machines)
    return Reservation(
        GANG, RegionId("r"), (ClusterId("c0"),), names, 8, standing, NOW, start_s, start_s + RULE.tolerance_s
    )


def first_room_one_by_one(inventory: RegionCapacity, asked: PatientGang, ends: list[ExpectedEnd]) -> float | None:
    """The plain twin of `earliest_start`: releases one after the other and tries after each."""
    with inventory.tentatively():
        at_s = NOW
        for place, end in enumerate([None, *sorted(ends, key=lambda one: (max(NOW, one.end_s), one.attempt))]):
            if end is not None:
                at_s = max(NOW, end.end_s)
                inventory.release(end.attempt)
            plan = plan_workload(inventory, asked.workload, asked.standing, at_s, within_quota=True)
            if isinstance(plan, Plan):
                return at_s
            assert place <= len(ends)
    return None


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(-2, 6).map(lambda n: NOW + 100.0 * n)), max_size=14),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([BETTER, NORMAL, WORSE]),
)
def test_the_earliest_start_is_that_of_releasing_one_after_the_other(
    asked: list[tuple[int, float]], tasks: int, gpus: int, standing: Standing
) -> None:
    inventory = region_with(2, clusters=2)
    ends = run_there(inventory, asked)
    before = inventory.holdings()
    one = gang(tasks, gpus, standing)
    found = earliest_start(inventory, one, ends, NOW)
    assert inventory.holdings() == before
    assert (None if isinstance(found, Refusal) else found[0]) == first_room_one_by_one(inventory, one, ends)
    inventory.check()


def test_what_could_never_start_gets_no_reservation_and_it_is_said_why() -> None:
    inventory = region_with(2)
    inventory.set_machine_state(MachineId("m00"), MachineState.DOWN)
    found = plan_reservations(inventory, [gang(2)], [], {}, {}, RULE, NOW)
    assert (found.all, [one.workload for one in found.unmet]) == ((), [GANG])
    assert "no cluster of region r has room for more than 1" in found.unmet[0].sentence


def test_each_reason_ends_a_reservation() -> None:
    inventory = region_with(2)
    inventory.reserved.replace([kept(["m00"], NOW)])
    waiting = {GANG: NORMAL}

    def reason(now: float = NOW, rule: ReservationRule = RULE, **changes: Standing) -> list[ReservationEnd]:
        there = {WorkloadId(name): standing for name, standing in changes.items()}
        return [one.reason for one in plan_reservations(inventory, [], [], there, {}, rule, now).ended]

    assert reason(gang=NORMAL) == []
    assert reason() == [ReservationEnd.NOT_QUEUED]
    assert reason(NOW + RULE.tolerance_s, gang=NORMAL) == []
    assert reason(NOW + RULE.tolerance_s + 1.0, gang=NORMAL) == [ReservationEnd.NOT_MET]
    off = replace(RULE, limits_of_priorities=MappingProxyType({3: ReservationLimits(at_most=0)}))
    assert reason(rule=off, gang=NORMAL) == [ReservationEnd.SWITCHED_OFF]
    inventory.set_machine_state(MachineId("m00"), MachineState.DRAINING)
    assert reason(gang=NORMAL) == [ReservationEnd.MACHINE_LOST]
    assert plan_reservations(inventory, [], [], waiting, {}, RULE, NOW).kept == ()


def test_a_reservation_elsewhere_is_taken_over_only_if_it_is_much_sooner() -> None:
    inventory = region_with(2)
    other = replace(kept(["x"]), region=RegionId("other"))
    late = replace(other, expected_start_s=NOW + RULE.tolerance_s + 1.0)
    soon = replace(other, expected_start_s=NOW + RULE.tolerance_s)
    assert plan_reservations(inventory, [gang(2)], [], {GANG: NORMAL}, {GANG: soon}, RULE, NOW).made == ()
    assert len(plan_reservations(inventory, [gang(2)], [], {GANG: NORMAL}, {GANG: late}, RULE, NOW).made) == 1
    old = replace(late, made_s=NOW - RULE.look_every_s - 1.0)
    assert plan_reservations(inventory, [gang(2)], [], {GANG: NORMAL}, {GANG: old}, RULE, NOW).made == ()


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9).map(lambda n: NOW + 100.0 * n)), max_size=20),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([BETTER, NORMAL]), st.integers(0, 200)), max_size=6),
    st.integers(0, 3),
)
def test_never_more_than_the_limit_and_never_one_machine_for_two_alike(
    asked: list[tuple[int, float]], gangs: list[tuple[int, Standing, int]], at_most: int
) -> None:
    inventory = region_with(4)
    ends = run_there(inventory, asked)
    rule = replace(RULE, limits=ReservationLimits(after_s=100.0, at_most=at_most))
    patient = [gang(tasks, 4, standing, f"g{n}", float(waited)) for n, (tasks, standing, waited) in enumerate(gangs)]
    waited = {one.workload.workload: one.waited_s for one in patient}
    found = plan_reservations(inventory, patient, ends, {}, {}, rule, NOW)
    assert not inventory.reserved
    for standing in (BETTER, NORMAL):
        alike = [one for one in found.made if one.standing == standing]
        machines = [machine for one in alike for machine in one.machines]
        assert len(alike) <= at_most
        assert len(set(machines)) == len(machines)
    assert all(waited[one.workload] >= 100.0 and one.expected_start_s >= NOW for one in found.made)
    inventory.reserved.replace(found.made)
    again = plan_reservations(
        inventory, patient, ends, {one.workload: one.standing for one in found.made}, {}, rule, NOW
    )
    assert set(again.kept) == set(found.made)


def planned(
    inventory: RegionCapacity, asked: Workload, standing: Standing = NORMAL, now: float = NOW
) -> Plan | Refusal:
    return plan_workload(inventory, asked, standing, now, within_quota=True)


def test_who_is_kept_off() -> None:
    inventory = region_with(2)
    inventory.reserved.replace([kept(["m00", "m01"])])
    long, short = workload("long", 1, 1), workload("short", 1, 1, 1_800.0)
    held = planned(inventory, long)
    assert isinstance(held, Refusal)
    assert held.reason is Reason.HELD_FOR_OTHERS
    assert "kept for a gang that has waited for longer, expected to start at 1970-01-01 03:20 UTC" in held.sentence
    assert isinstance(planned(inventory, short), Plan)
    assert isinstance(planned(inventory, short, now=NOW + 200.0), Plan)
    assert isinstance(planned(inventory, short, now=NOW + 201.0), Refusal)
    assert isinstance(planned(inventory, long, BETTER), Plan)
    assert isinstance(planned(inventory, workload("long", 1, 1), WORSE), Refusal)
    assert isinstance(planned(inventory, workload("gang", 2, 4)), Plan)
    inventory.reserved.replace([kept(["m00"])])
    found = planned(inventory, long)
    assert isinstance(found, Plan)
    assert {placement.machine for placement in found.placements} == {"m01"}


def test_victims_on_machines_that_are_kept_are_of_no_use_to_others() -> None:
    inventory = region_with(1)
    run_there(inventory, [(4, NOW)], WORSE)
    assert isinstance(planned(inventory, workload("long", 1, 4)), Plan)
    inventory.reserved.replace([kept(["m00"])])
    assert isinstance(planned(inventory, workload("long", 1, 4)), Refusal)


def test_once_the_gang_is_placed_its_machines_are_open() -> None:
    inventory = region_with(2)
    inventory.reserved.replace([kept(["m00"])])
    plan = planned(inventory, workload("gang", 1, 4))
    assert isinstance(plan, Plan)
    (placement,) = plan.placements
    with inventory.tentatively():
        inventory.hold(Holding(AttemptKey(GANG, AttemptNumber(1)), NORMAL, NOW, plan.placements))
        left = "m01" if placement.machine == "m00" else "m00"
        found = planned(inventory, workload("long", 1, 4))
        assert isinstance(found, Plan)
        assert found.placements[0].machine == left
    found = planned(inventory, workload("long", 1, 4))
    assert isinstance(found, Plan)
    assert found.placements[0].machine == "m01"
    assert isinstance(planned(inventory, workload("long", 2, 4)), Refusal)


def test_reservations_are_not_made_where_nothing_is_remembered_by_run_time() -> None:
    with pytest.raises(ValueError, match="not in use"):
        RegionCapacity(region_of(1)).reserved.replace([kept(["m00"])])


def test_a_refusal_for_want_of_what_is_kept_holds_for_what_runs_as_long() -> None:
    inventory = region_with(1)
    memory = RegionBidder(region_of(1), inventory, Catalog()).refusals
    inventory.reserved.replace([kept(["m00"])])
    long, short, owner = workload("long", 1, 4), workload("short", 1, 4, 900.0), workload("gang", 1, 4)
    held = planned(inventory, long)
    assert isinstance(held, Refusal)
    memory.remember(long, NORMAL, held, NOW, within_quota=True)

    def known(asked: Workload, standing: Standing = NORMAL) -> bool:
        return memory.why_it_fails(asked, standing, NOW, within_quota=True) is not None

    assert known(workload("other", 1, 4))
    assert known(workload("larger", 2, 4), WORSE)
    assert not known(short)
    assert not known(owner)
    assert not known(long, BETTER)
    inventory.reserved.replace([])
    assert not known(long)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("run"), st.just(1), st.sampled_from([2, 4])),
            st.tuples(st.just("end"), st.integers(0, 9), st.just(0)),
            st.tuples(st.just("keep"), st.integers(0, 7), st.integers(0, 2)),
            st.tuples(st.just("ask"), st.integers(1, 2), st.sampled_from([2, 4])),
        ),
        min_size=10,
        max_size=40,
    ),
    st.data(),
)
def test_never_remembers_a_refusal_of_what_could_be_placed(
    steps: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    region = region_of(3)
    inventory = region_with(3)
    bidder = RegionBidder(region, inventory, Catalog())
    running: list[AttemptKey] = []
    standings = [BETTER, NORMAL, WORSE]
    for number, (what, first, second) in enumerate(steps):
        if what == "keep":
            machines = [f"m0{n}" for n in range(3) if first & 1 << n]
            later_s = data.draw(st.sampled_from([500.0, 1_000.0, 4_000.0]))
            inventory.reserved.replace([kept(machines, NOW + later_s, standings[second])] if machines else [])
        elif what == "end":
            if running:
                inventory.release(running.pop(first % len(running)))
        else:
            name = "gang" if what == "ask" and data.draw(st.booleans()) else f"n{number}"
            asked = workload(name, first, second, data.draw(st.sampled_from([600.0, 3_000.0, 1e6])))
            standing = data.draw(st.sampled_from(standings))
            found = plan_workload(inventory, asked, standing, NOW, within_quota=True)
            lot = Lot(asked, QueuePosition(asked.workload, standing, 0.0, 0.0, True), AttemptNumber(1))
            if bidder.refusals.why_it_fails(asked, standing, NOW, within_quota=True) is not None:
                assert isinstance(found, Refusal)
            question = bidder.refusals.question(asked.specification, within_quota=True)
            if name != "gang" and bidder.refusals.refuses(question, standing):
                assert isinstance(found, Refusal)
            plan = bidder.plan_alone(lot, NOW)
            assert isinstance(plan, Plan) == isinstance(found, Plan)
            if what == "run" and isinstance(plan, Plan) and not plan.evictions:
                key = AttemptKey(asked.workload, AttemptNumber(1))
                inventory.hold(Holding(key, standing, NOW, plan.placements))
                running.append(key)
    inventory.check()


def of_run_time(entry_point: EntryPoint) -> WorkloadSpecification:
    return replace(
        workload("w", 1, 1).specification,
        jobs=(replace(workload("w", 1, 1).specification.jobs[0], entry_point=entry_point),),
    )


def test_run_times_are_rounded_up_to_classes() -> None:
    classes = [run_time_class(of_run_time(Emulated(run_s))) for run_s in (1.0, SHORTEST_S, 901.0, 1_801.0, 1e12)]
    assert classes == [1, 1, 2, 3, NOT_KNOWN]
    assert [most_s(one) for one in (1, 2, 3)] == [900.0, 1_800.0, 3_600.0]
    assert run_time_class(of_run_time(Command(("python", "train.py")))) == NOT_KNOWN


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ReservationLimits(after_s=-1.0), "after_s"),
        (lambda: ReservationLimits(at_most=-1), "at_most"),
        (lambda: ReservationRule(least_gpus=0), "least_gpus"),
        (lambda: ReservationRule(tolerance_s=-1.0), "tolerance_s"),
        (lambda: ReservationRule(look_every_s=0.0), "look_every_s"),
        (lambda: ReservationRule(limits_of_priorities={9: ReservationLimits()}), "9 is none"),
    ],
)
def test_limits_that_make_no_sense_are_refused(make: object, words: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=words):
        make()
