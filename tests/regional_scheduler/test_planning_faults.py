"""A workload whose planning raises is refused where faults are contained, and nothing else notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from data_placement.catalog import Catalog
from domain.diagnosis import Reason
from domain.identifiers import AttemptNumber, JobName, WorkloadId
from domain.placement import Holding
from domain.placement_changes import ImpossibleAction
from domain.plan import Plan
from domain.rank import QueuePosition, Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload
from regional_scheduler import bidding, dispatching, planner
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.dispatching import Dispatch, DispatchRefused
from regional_scheduler.planner import Refusal, plan_workload
from regional_scheduler.planning_faults import MOST_KEPT, MOST_SET_ASIDE, SET_ASIDE_S
from regional_scheduler.refusals import memory
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.region_change import capacity_after_change
from regional_scheduler.rounds import Bid, Lot, NoPlan, Round
from regional_scheduler.voluntary_releases import VoluntaryRelease
from tests.cluster_manager.fleets import cluster, gpu_machine, key_of, region, tasks_on
from tests.cluster_manager.inventory_worlds import (
    Step,
    World,
    elastic_steps,
    regions,
    standings,
    workload_of,
    workloads,
)
from tests.examples import examples

EQUAL = Standing(3, 0)


class _Broken:
    """Says that attempts could do without a task that they do not have."""

    def releases_of(self, holding: Holding) -> Iterator[VoluntaryRelease]:
        yield VoluntaryRelease(holding.key, holding.placements[0]._replace(task=99), None)


def a_region(*, contained: bool) -> RegionCapacity:
    """Planning raises for whoever finds no place in what is free."""
    inventory = RegionCapacity(region(cluster("c", [gpu_machine("m1"), gpu_machine("m2")])))
    inventory.voluntary.add_source(_Broken())
    inventory.hold(Holding(key_of("secret"), EQUAL, 0.0, (tasks_on("m1", (0, 1, 2, 3)),)))
    inventory.faults.contained = contained
    return inventory


def newcomer(gpus: int, name: str = "new") -> Workload:
    resources = TaskResources(gpus=gpus, cpus=0.0, memory_gib=0.0)
    return workload_of(name, JobSpecification(JobName("job"), 2, resources, Emulated(60.0)))


def plan(inventory: RegionCapacity, workload: Workload) -> Plan | Refusal:
    return plan_workload(inventory, workload, EQUAL, 100.0, within_quota=False)


def test_it_raises_where_nobody_contains_it() -> None:
    with pytest.raises(ImpossibleAction):
        plan(a_region(contained=False), newcomer(6))


def test_the_refusal_says_no_more_than_that_it_failed() -> None:
    inventory = a_region(contained=True)
    refusal = plan(inventory, newcomer(6))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.diagnosis.since_s) == (Reason.PLANNING_FAILED, 100.0)
    assert "secret" not in refusal.sentence
    [failed] = inventory.faults.take_failed_planning()
    assert failed.workload == "new"
    assert isinstance(failed.error, ImpossibleAction)
    assert inventory.faults.take_failed_planning() == []
    inventory.check()
    assert isinstance(plan(inventory, newcomer(4)), Plan)


def test_only_so_many_errors_are_kept() -> None:
    inventory = a_region(contained=True)
    for number in range(MOST_KEPT + 5):
        plan(inventory, newcomer(6, f"w{number}"))
        plan(inventory, newcomer(6, f"w{number}"))
    assert [one.workload for one in inventory.faults.take_failed_planning()] == [f"w{n}" for n in range(MOST_KEPT)]
    assert inventory.faults.failed_plans == 2 * (MOST_KEPT + 5)


def test_a_region_that_has_changed_goes_on_containing() -> None:
    before = a_region(contained=True)
    plan(before, newcomer(6))
    described = region(cluster("c", [gpu_machine("m1"), gpu_machine("m2")]))
    after = capacity_after_change(before, described, {}, [_Broken()])
    assert isinstance(plan(after, newcomer(6, "another")), Refusal)
    assert [one.workload for one in after.faults.take_failed_planning()] == ["new", "another"]


def a_lot(workload: Workload, place: int) -> Lot:
    position = QueuePosition(workload.workload, EQUAL, 0.0, float(place), within_quota=False)
    return Lot(workload, position, AttemptNumber(1))


def test_the_other_lots_of_a_round_are_answered_and_what_was_won_is_dispatched() -> None:
    inventory = a_region(contained=True)
    described = region(cluster("c", [gpu_machine("m1"), gpu_machine("m2")]))
    bidder = RegionBidder(described, inventory, Catalog(()))
    lots = [a_lot(newcomer(6), 1), a_lot(newcomer(4, "fits"), 2)]
    response = bidder.answer(Round(1, 1, 100.0, 110.0, (inventory.region,), tuple(lots), reaches_end=True), 100.0)
    failed, bid = response.answers
    assert isinstance(failed, NoPlan)
    assert failed.reason is Reason.PLANNING_FAILED
    assert isinstance(bid, Bid)
    assert bidder.plan_alone(lots[0], 100.0) is None
    # Nothing follows from it for others that ask for as much.
    assert not bidder.still_refuses(newcomer(6), lots[0].position)
    refused, dispatched = bidder.confirm(lots, 100.0)
    assert (type(refused).__name__, type(dispatched).__name__) == ("DispatchRefused", "Dispatch")


@pytest.mark.parametrize(
    ("where", "name", "who"),
    [
        (memory, "question_about", "second"),
        (bidding, "abandonment", "first"),
        (dispatching, "abandonment", "first"),
        (dispatching, "needless_victims", "first"),
    ],
)
def test_what_raises_beside_planning_is_that_workload_s_affair_alone(
    where: ModuleType, name: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = a_region(contained=True)
    bidder = RegionBidder(region(cluster("c", [gpu_machine("m1"), gpu_machine("m2")])), inventory, Catalog(()))
    lots = [a_lot(newcomer(1, "first"), 1), a_lot(newcomer(1, "second"), 2)]
    monkeypatch.setattr(where, name, failing(getattr(where, name), 1, when_done=False))
    response = bidder.answer(Round(1, 1, 100.0, 110.0, (inventory.region,), tuple(lots), reaches_end=True), 100.0)
    confirmed = bidder.confirm(lots, 100.0)
    [failed] = inventory.faults.take_failed_planning()
    assert (failed.workload, type(failed.error)) == (who, _Planted)
    bids = [lot.workload.workload for lot, one in zip(lots, response.answers, strict=True) if isinstance(one, Bid)]
    dispatched = [one.lot.workload.workload for one in confirmed if isinstance(one, Dispatch)]
    reasons = [one.reason for one in response.answers if isinstance(one, NoPlan)]
    reasons += [one.diagnosis.reason for one in confirmed if isinstance(one, DispatchRefused)]
    others, both = [one for one in ("first", "second") if one != who], ["first", "second"]
    if name == "needless_victims":
        assert (bids, dispatched, reasons) == (both, both, [])
    else:
        at_dispatch = where is dispatching
        assert (bids, dispatched) == ((both, others) if at_dispatch else (others, both))
        assert reasons == [Reason.PLANNING_FAILED]
    inventory.check()


def test_what_fails_at_its_dispatch_gets_no_bid_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = a_region(contained=True)
    bidder = RegionBidder(region(cluster("c", [gpu_machine("m1"), gpu_machine("m2")])), inventory, Catalog(()))
    lots = [a_lot(newcomer(1, "first"), 1), a_lot(newcomer(1, "second"), 2)]

    def bids(now: float) -> list[bool]:
        return [isinstance(bidder.answer_alone(lot, now), Bid) for lot in lots]

    assert bids(100.0) == [True, True]
    monkeypatch.setattr(dispatching, "plan_workload", failing(plan_workload, 1, when_done=False))
    refused, dispatched = bidder.confirm(lots, 100.0)
    assert (type(refused).__name__, type(dispatched).__name__) == ("DispatchRefused", "Dispatch")
    again = bidder.answer_alone(lots[0], 100.0 + SET_ASIDE_S - 1.0)
    assert isinstance(again, NoPlan)
    assert again.reason is Reason.PLANNING_FAILED
    assert inventory.faults.failed_plans == 1, "it was not planned again"
    assert bids(100.0 + SET_ASIDE_S)[0]


def test_only_so_many_are_set_aside() -> None:
    faults = a_region(contained=True).faults
    for number in range(MOST_SET_ASIDE + 1):
        faults.set_aside(WorkloadId(f"w{number}"), 100.0)
    assert [faults.is_set_aside(WorkloadId(f"w{number}"), 100.0) for number in (0, 1, MOST_SET_ASIDE)] == [
        False,
        True,
        True,
    ]


_STEPS: tuple[tuple[object, str], ...] = (
    (planner, "query_of"),
    (planner, "find_best_place"),
    (planner, "place_in_turn"),
    (planner, "fewest_releases"),
    (planner, "without_needless"),
    (planner, "placements_of"),
    (planner, "release_actions"),
    (planner, "free_room"),
    (planner, "room_with_victims"),
    (ClusterCapacity, "hold"),
    (ClusterCapacity, "release"),
    (ClusterCapacity, "replace_placements"),
)
"""Of planning, by where they are called."""


class _Planted(Exception):
    pass


def failing(step: Callable[..., Any], at_call: int, *, when_done: bool) -> Callable[..., Any]:
    """The step, which raises at this one of its calls, before or after it has done its work."""
    calls = 0

    def fails(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at_call and not when_done:
            raise _Planted
        result = step(*arguments, **named)
        if calls == at_call:
            raise _Planted
        return result

    return fails


def a_world(described: Any, history: list[Step]) -> World:
    world = World.of(described)
    world.inventory.faults.contained = True
    for step in history:
        world.take(step)
    return world


@settings(max_examples=examples(200))
@given(
    regions(2, 2, 3),
    elastic_steps(),
    st.lists(st.tuples(workloads(), standings()), min_size=1, max_size=3),
    st.sampled_from(_STEPS),
    st.integers(1, 4),
    st.booleans(),
)
def test_planning_that_raises_never_changes_the_region(
    described: Any,
    history: list[Step],
    newcomers: list[tuple[Workload, Standing]],
    where: tuple[object, str],
    at_call: int,
    when_done: bool,
) -> None:
    world, untouched = a_world(described, history), a_world(described, history)
    place, name = where
    for number, (workload, standing) in enumerate(newcomers):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(place, name, failing(getattr(place, name), at_call, when_done=when_done))
            plan_workload(world.inventory, workload, standing, world.now_s, within_quota=False)
        raised = [type(one.error) for one in world.inventory.faults.take_failed_planning()]
        assert set(raised) <= {_Planted}
        event(f"{name} raises: {bool(raised)}")
        world.inventory.check()
        named = Workload(WorkloadId(f"again-{number}"), workload.specification, 0.0)
        assert plan_workload(world.inventory, named, standing, world.now_s, within_quota=False) == plan_workload(
            untouched.inventory, named, standing, world.now_s, within_quota=False
        )
