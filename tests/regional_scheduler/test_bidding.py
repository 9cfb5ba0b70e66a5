"""A region's answers to a round, and what becomes of the lots that it wins."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_placement.catalog import Catalog
from domain.diagnosis import Diagnosis, Numbers, Quantity, Reason
from domain.fleet import Cluster, Machine, MachineState, Rack, Region
from domain.identifiers import (
    AttemptNumber,
    ClusterId,
    GpuModel,
    JobName,
    MachineId,
    RackId,
    RegionId,
    TableId,
    TenantId,
    WorkloadId,
)
from domain.placement import AttemptKey, Holding
from domain.plan import Plan
from domain.rank import QueuePosition, Standing
from domain.resources import TaskResources
from domain.table import Table
from domain.workload import Emulated, JobSpecification, TableInput, Workload, WorkloadSpecification
from domain.workload_fingerprint import workload_fingerprint
from regional_scheduler.bidding import PlaceLost, RegionBidder
from regional_scheduler.dispatching import Dispatch, DispatchRefused
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.rounds import Abandoned, Bid, Lot, NoPlan, RegionResponse, Round
from tests.examples import examples
from tests.regional_scheduler.auction_worlds import AuctionWorld, random_world

EAST, WEST = RegionId("east"), RegionId("west")
A100 = GpuModel("a100")
CLICKS = TableId("clicks")
REGION = Region(
    EAST,
    (
        Cluster(
            ClusterId("e1"),
            (Rack(RackId("r1"), tuple(Machine(MachineId(f"m{i}"), A100, 8, 64.0, 512.0) for i in range(2))),),
        ),
    ),
)


class Bench:
    """A region of two machines with 8 GPUs each, and its bidder."""

    def __init__(self) -> None:
        self.inventory = RegionCapacity(REGION)
        self.catalog = Catalog([Table(CLICKS, 10**9, home=EAST)])
        self.bidder = RegionBidder(REGION, self.inventory, self.catalog)

    def answer(self, lots: Sequence[Lot], scan_pass: int = 1, opened_s: float = 100.0) -> RegionResponse:
        opened = Round(1, scan_pass, opened_s, opened_s + 2.0, (EAST, WEST), tuple(lots), reaches_end=True)
        response = self.bidder.answer(opened, opened_s + 1.0)
        self.inventory.check()
        return response

    def run(self, name: str, gpus: int, priority: int, started_s: float) -> AttemptKey:
        """Something that runs already."""
        one = lot(9, gpus, priority=priority, name=name)
        plan = plan_workload(self.inventory, one.workload, one.position.standing, started_s, within_quota=False)
        assert isinstance(plan, Plan)
        self.inventory.hold(Holding(one.key, one.position.standing, started_s, plan.placements))
        return one.key


def lot(
    number: int,
    gpus: int,
    *,
    priority: int = 1,
    expected_winner: RegionId | None = None,
    tables: tuple[TableInput, ...] = (),
    name: str | None = None,
) -> Lot:
    workload = WorkloadId(name or f"w{number}")
    job = JobSpecification(JobName("train"), 1, TaskResources(gpus=gpus), Emulated(1.0))
    specification = WorkloadSpecification(workload, TenantId("t"), (job,), tables=tables)
    position = QueuePosition(workload, Standing(priority, 0), 0.0, float(number), within_quota=True)
    return Lot(Workload(workload, specification, float(number)), position, AttemptNumber(1), expected_winner)


# ---------------------------------------------------------------- answering


def test_a_bid_tells_score_and_summary_of_the_plan() -> None:
    [answer] = Bench().answer([lot(0, 8)]).answers
    assert isinstance(answer, Bid)
    assert answer.score.fragmentation == 0
    assert (answer.summary.clusters, answer.summary.machines, answer.summary.evictions) == (("e1",), 1, 0)


def test_a_lot_is_planned_with_the_expected_wins_above_it_placed() -> None:
    """Both machines go to the first two; the third finds no room."""
    response = Bench().answer([lot(0, 8, expected_winner=EAST), lot(1, 8, expected_winner=EAST), lot(2, 1)])
    assert [type(answer) for answer in response.answers] == [Bid, Bid, NoPlan]
    assert response.assumed_wins == ("w0", "w1")
    refused = response.answers[2]
    assert isinstance(refused, NoPlan)
    assert (refused.reason, refused.assumes_wins) == (Reason.NO_ROOM, True)


def test_a_lot_that_another_region_is_expected_to_win_is_not_placed() -> None:
    response = Bench().answer([lot(0, 8, expected_winner=WEST), lot(1, 8, expected_winner=WEST), lot(2, 8)])
    assert [type(answer) for answer in response.answers] == [Bid, Bid, Bid]
    assert response.assumed_wins == ("w2",)


def test_without_a_hint_a_region_assumes_that_it_wins_what_it_can_place() -> None:
    response = Bench().answer([lot(0, 8), lot(1, 16), lot(2, 8), lot(3, 8)])
    assert [type(answer) for answer in response.answers] == [Bid, Abandoned, Bid, NoPlan]
    assert response.assumed_wins == ("w0", "w2")


def test_the_outline_of_what_is_idle_is_that_before_the_first_lot() -> None:
    bench = Bench()
    bench.run("running", 3, priority=0, started_s=0.0)
    response = bench.answer([lot(0, 8)])
    assert response.gpus == 16
    assert response.cpus == 128.0
    assert [(idle.gpu_model, idle.idle_gpus, idle.machines) for idle in response.idle] == [(A100, 5, 1), (A100, 8, 1)]


def test_further_lots_are_answered_with_what_was_won_before_placed() -> None:
    bench = Bench()
    won = lot(1, 8, name="won")
    further = Round(1, 1, 100.0, 102.0, (EAST, WEST), (lot(2, 8), lot(3, 8)), reaches_end=True)
    response = bench.bidder.answer(further, 101.0, [won])
    assert [type(answer) for answer in response.answers] == [Bid, NoPlan]
    assert sum(idle.idle_gpus * idle.machines for idle in response.idle) == 8
    bench.inventory.check()
    assert bench.answer([lot(2, 8), lot(3, 8)]).answers[1] != response.answers[1], "nothing of it is left"


def test_a_region_that_lost_the_place_of_what_it_has_won_does_not_go_on() -> None:
    bench = Bench()
    bench.inventory.set_machine_state(MachineId("m0"), MachineState.DOWN)
    further = Round(1, 1, 100.0, 102.0, (EAST, WEST), (lot(3, 1),), reaches_end=True)
    with pytest.raises(PlaceLost, match="w2, which it has won"):
        bench.bidder.answer(further, 101.0, [lot(1, 8, name="w1"), lot(2, 8, name="w2")])
    bench.inventory.check()
    assert isinstance(bench.answer([lot(3, 8)]).answers[0], Bid)


def test_a_region_without_the_data_abandons() -> None:
    bench = Bench()
    bench.catalog.record(Table(CLICKS, 10**9, home=WEST))
    [answer] = bench.answer([lot(0, 8, tables=(TableInput(CLICKS),))]).answers
    assert isinstance(answer, Abandoned)
    assert (answer.reason, answer.missing_tables) == (Reason.NO_DATA, (CLICKS,))


def test_victims_running_times_are_those_at_the_opening_of_the_round() -> None:
    """Whenever a region gets to answer: else the later one would seem to have the better victims."""
    bench = Bench()
    bench.run("old", 8, priority=6, started_s=40.0)
    bench.run("new", 8, priority=0, started_s=60.0)
    [answer] = bench.answer([lot(0, 8)], opened_s=100.0).answers
    assert isinstance(answer, Bid)
    assert answer.summary.evictions == 1
    assert answer.score.preempted_running_s == -60.0


def test_lots_of_a_window_do_not_evict_the_same_victim_twice() -> None:
    bench = Bench()
    bench.run("first", 8, priority=6, started_s=40.0)
    bench.run("second", 8, priority=0, started_s=40.0)
    response = bench.answer([lot(0, 8), lot(1, 8)])
    assert [type(answer) for answer in response.answers] == [Bid, NoPlan]


def test_a_larger_job_is_told_what_a_smaller_one_did_not_find() -> None:
    bench = Bench()
    bench.run("first", 6, priority=0, started_s=0.0)
    bench.run("second", 8, priority=0, started_s=0.0)
    _, refused = bench.answer([lot(0, 4, name="other"), lot(1, 8)]).answers
    assert isinstance(refused, NoPlan)
    assert refused.diagnosis == Diagnosis(
        Reason.KNOWN_TO_FAIL,
        EAST,
        ClusterId("e1"),
        JobName("train"),
        numbers=(Numbers(Quantity.TASKS, 1, 0),),
        since_s=100.0,
    )
    assert refused.sentence.startswith("job train asks for more than another job for which there is no room; that one")
    assert "1 task of 4 GPUs" in refused.sentence


# ---------------------------------------------------------------- what is remembered


def test_what_was_refused_is_remembered_until_there_is_more_room() -> None:
    bench = Bench()
    bench.run("first", 8, priority=0, started_s=0.0)
    bench.run("second", 8, priority=0, started_s=0.0)
    assert reasons(bench.answer([lot(0, 4), lot(1, 8)])) == [Reason.NO_ROOM, Reason.KNOWN_TO_FAIL]
    assert reasons(bench.answer([lot(2, 4)])) == [Reason.NO_ROOM]
    assert reasons(bench.answer([lot(2, 4)], scan_pass=2)) == [Reason.NO_ROOM]
    assert bench.bidder.refusals.hits == 3
    bench.inventory.release(AttemptKey(WorkloadId("first"), AttemptNumber(1)))
    assert reasons(bench.answer([lot(2, 4)], scan_pass=2)) == [None]


def test_a_remembered_refusal_stands_whatever_is_won_above_it() -> None:
    bench = Bench()
    bench.run("first", 4, priority=0, started_s=0.0)
    bench.run("second", 8, priority=0, started_s=0.0)
    bench.answer([lot(0, 8)])
    _, refused = bench.answer([lot(1, 2, expected_winner=EAST), lot(2, 8)], opened_s=150.0).answers
    assert isinstance(refused, NoPlan)
    assert refused.reason is Reason.NO_ROOM
    assert bench.bidder.refusals.hits == 1
    assert not refused.assumes_wins
    assert "no cluster of region east has room for any of them" in refused.sentence
    assert (refused.diagnosis.region, refused.diagnosis.cluster, refused.diagnosis.job) == (EAST, "e1", "train")
    assert [(number.asked, number.available) for number in refused.diagnosis.numbers] == [(1, 0)]
    assert refused.diagnosis.since_s == 150.0


def test_what_is_refused_under_assumed_wins_is_known_for_the_rest_of_the_window_only() -> None:
    bench = Bench()
    bench.run("first", 8, priority=0, started_s=0.0)
    response = bench.answer([lot(0, 8, expected_winner=EAST), lot(1, 8), lot(2, 8)])
    assert reasons(response) == [None, Reason.NO_ROOM, Reason.NO_ROOM]
    assert bench.bidder.refusals.hits == 1
    assert all(answer.assumes_wins for answer in response.answers if isinstance(answer, NoPlan))
    assert len(bench.bidder.refusals) == 0
    assert reasons(bench.answer([lot(1, 8)])) == [None]


def test_answering_leaves_what_the_cache_knows_as_it_was() -> None:
    """Undoing an assumed win makes no room that was not there before."""
    bench = Bench()
    bench.run("first", 8, priority=0, started_s=0.0)
    bench.run("second", 4, priority=0, started_s=0.0)
    bench.answer([lot(0, 8)])
    bench.answer([lot(1, 4, expected_winner=EAST), lot(2, 1)])
    assert reasons(bench.answer([lot(3, 8)])) == [Reason.NO_ROOM]
    assert bench.bidder.refusals.hits == 1


def reasons(response: RegionResponse) -> list[Reason | None]:
    return [answer.reason if isinstance(answer, NoPlan) else None for answer in response.answers]


@settings(max_examples=examples(40))
@given(st.integers(0, 2**32))
def test_never_changes_anything_by_answering(seed: int) -> None:
    world = AuctionWorld(random_world(seed))
    arrivals = [arrival for arrivals in world.plan.arrivals for arrival in arrivals]
    lots = sorted(
        (
            Lot(
                arrival.workload,
                QueuePosition(arrival.workload.workload, arrival.standing, arrival.credit, 0.0, within_quota=True),
                AttemptNumber(1),
            )
            for arrival in arrivals
        ),
        key=lambda one: one.position.sort_key,
    )
    opened = Round(1, 1, 50.0, 52.0, world.plan.regions, tuple(lots), reaches_end=True)
    for name, region in world.regions.items():
        inventory = world.inventories[name]
        bidder = RegionBidder(region, inventory, world.catalog)
        first = bidder.answer(opened, 50.0)
        inventory.check()
        assert inventory.holdings() == ()
        again = RegionBidder(region, inventory, world.catalog).answer(opened, 50.0)
        assert again == first


# ---------------------------------------------------------------- confirming


def test_what_is_won_is_placed_and_its_victims_are_told_to_leave() -> None:
    bench = Bench()
    victim = bench.run("victim", 8, priority=6, started_s=0.0)
    bench.run("better", 8, priority=0, started_s=0.0)
    [confirmation] = bench.bidder.confirm([lot(0, 8)], 101.0)
    assert isinstance(confirmation, Dispatch)
    assert confirmation.plan.evictions == (victim,)
    tenant = lot(0, 8).workload.specification.tenant
    newcomer = Holding(lot(0, 8).key, Standing(1, 0), 101.0, confirmation.plan.placements, tenant=tenant)
    assert bench.inventory.is_leaving(victim)
    assert bench.inventory.holding(newcomer.key) == newcomer
    bench.inventory.check()


def test_what_no_longer_fits_goes_back_and_the_rest_is_dispatched() -> None:
    """Between answer and confirmation one of the two machines was drained."""
    bench = Bench()
    response = bench.answer([lot(0, 8), lot(1, 8), lot(2, 4)])
    assert len(response.assumed_wins) == 2
    bench.inventory.set_machine_state(MachineId("m1"), MachineState.DRAINING)
    first, second = bench.bidder.confirm([lot(0, 8), lot(1, 8)], 101.0)
    assert isinstance(first, Dispatch)
    assert isinstance(second, DispatchRefused)
    assert second.diagnosis.reason is Reason.NO_ROOM
    assert "train" in second.sentence
    assert len(bench.inventory.holdings()) == 1


def test_what_lost_its_data_meanwhile_goes_back() -> None:
    bench = Bench()
    won = lot(0, 8, tables=(TableInput(CLICKS),))
    bench.catalog.record(Table(CLICKS, 10**9, home=WEST))
    [refused] = bench.bidder.confirm([won], 101.0)
    assert refused == DispatchRefused(
        won,
        Diagnosis(Reason.NO_DATA, EAST, field="tables", tables=(CLICKS,)),
        "table clicks is not here but in west",
    )


def test_nothing_won_is_nothing_to_do() -> None:
    assert Bench().bidder.confirm([], 101.0) == ()


def test_won_lots_out_of_queue_order_are_refused() -> None:
    with pytest.raises(ValueError, match="must come in queue order"):
        Bench().bidder.confirm([lot(1, 1), lot(0, 1)], 101.0)


def test_what_is_withdrawn_leaves_the_inventory_as_it_was_and_is_dispatched_alike_again() -> None:
    bench = Bench()
    victims = [bench.run(name, 4, priority=6, started_s=0.0) for name in ("a", "b", "c")]
    held = set(bench.inventory.holdings())
    won = [lot(0, 8), lot(1, 4), lot(2, 2)]
    confirmed = bench.bidder.confirm(won, 101.0)
    assert {victim for done in confirmed if isinstance(done, Dispatch) for victim in done.plan.evictions}
    assert bench.bidder.withdraw(confirmed)
    bench.inventory.check()
    assert set(bench.inventory.holdings()) == held
    assert not any(bench.inventory.is_leaving(victim) for victim in victims)
    assert bench.bidder.confirm(won, 101.0) == confirmed


def test_of_equal_bids_that_of_the_region_wins_where_the_last_plan_has_the_workload() -> None:
    bench = Bench()
    one = lot(1, 8, tables=(TableInput(CLICKS),))
    fingerprint = workload_fingerprint(one.workload.specification)
    assert fingerprint is not None

    def hint() -> int:
        (answer,) = bench.answer([one]).answers
        alone = bench.bidder.plan_alone(one, 100.0)
        assert isinstance(answer, Bid)
        assert alone is not None
        assert alone.score == answer.score
        return answer.score.hint

    assert hint() == 0
    bench.catalog.hints = {fingerprint: WEST}
    assert hint() == 1
    bench.catalog.hints = {fingerprint: EAST}
    assert hint() == 0
    bench.catalog.hints = {"workload-other": WEST}
    assert hint() == 0
