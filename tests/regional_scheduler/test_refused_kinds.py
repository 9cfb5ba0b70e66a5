"""Kinds that are passed over: never is one for which a region has room, once the regions have looked."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from data_placement.catalog import Catalog
from domain.fleet import MachineState
from domain.identifiers import ANY_GPU_MODEL, AttemptNumber, JobName, RegionId, TenantId, WorkloadId
from domain.placement import AttemptKey
from domain.plan import Plan
from domain.rank import QueuePosition, Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from regional_scheduler.auction import AwaitingData, RoundOutcome, Won, close_round
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.planner import plan_workload
from regional_scheduler.queue_walk import QueueWalk, WalkStep, next_step
from regional_scheduler.refusals.kinds import HopelessKinds, kind_of
from regional_scheduler.refusals.refused_kinds import KindKey, RefusedKind, RefusedKinds
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.round_opening import open_round
from regional_scheduler.rounds import AuctionSettings, Lot
from tests.regional_scheduler.auction_worlds import lots_won, random_world

EVERYONE = TenantId("")
STEPS = 12


class PassedOver:
    """Regions that auction, and what they know to find nothing, without a database between them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        plan = random_world(seed)
        self.inventories = {region.region: RegionCapacity(region) for region in plan.fleet.regions}
        self.machines = {
            region.region: sorted(machine.machine for machine in region.machines()) for region in plan.fleet.regions
        }
        catalog = Catalog(plan.tables)
        self.bidders = {
            region.region: RegionBidder(region, self.inventories[region.region], catalog)
            for region in plan.fleet.regions
        }
        self.watches = {region: RefusedKinds() for region in self.bidders}
        self.kinds = [arrival.workload.specification for arrivals in plan.arrivals for arrival in arrivals]
        self.holding: dict[KindKey, tuple[Standing, int]] = {}
        self.running: list[tuple[RegionId, AttemptKey]] = []
        self.round_number = 0
        self.now = 0.0
        self.drawn = 0
        self.passed_over = 0

    def lots(self) -> list[Lot]:
        lots = []
        for _ in range(self.rng.randint(1, 8)):
            self.drawn += 1
            name = WorkloadId(f"w{self.drawn:06}")
            specification = self.rng.choice(self.kinds)
            standing = Standing(self.rng.choice((1, 3, 6)), 0)
            position = QueuePosition(name, standing, 0.0, float(self.drawn), standing.priority < 6)
            lots.append(
                Lot(Workload(name, specification, 0.0), position, AttemptNumber(1), kind=kind_of(specification))
            )
        return sorted(lots, key=lambda lot: lot.position.sort_key)

    def is_passed_over(self, lot: Lot) -> bool:
        assert lot.kind is not None
        found = self.holding.get(KindKey(lot.kind, EVERYONE, lot.position.within_quota))
        return found is not None and found[0] <= lot.position.standing

    def auction(self, lots: list[Lot]) -> None:
        """One round; all that it decides is carried out, and regions hear of what was refused."""
        self.round_number += 1
        opened = open_round(
            number=self.round_number,
            scan_pass=1,
            now=self.now,
            settings=AuctionSettings(),
            participants=tuple(self.bidders),
            upcoming=lots,
            hints={},
        )
        outcome = close_round(opened, [bidder.answer(opened, self.now) for bidder in self.bidders.values()], self.now)
        assert isinstance(outcome, RoundOutcome)
        for region, bidder in self.bidders.items():
            for lot in lots_won(outcome, region):
                bidder.confirm([lot], self.now)
                self.running.append((region, lot.key))
        hopeless = {*outcome.hopeless}
        refused: list[RefusedKind] = []
        for verdict in outcome.verdicts:
            lot = verdict.lot
            if isinstance(verdict, Won) or lot.workload.workload not in hopeless or lot.kind is None:
                continue
            key = KindKey(lot.kind, EVERYONE, lot.position.within_quota)
            if key not in {one.key for one in refused}:
                self.holding[key] = (lot.position.standing, self.round_number)
                refused.append(
                    RefusedKind(
                        key,
                        self.round_number,
                        lot.workload,
                        lot.position,
                        verdict.diagnosis,
                        isinstance(verdict, AwaitingData),
                    )
                )
        for watch in self.watches.values():
            watch.add(refused)

    def happen(self) -> None:
        """Something ends, a machine fails or comes back, time passes."""
        self.now += self.rng.choice((0.0, 60.0, 600.0))
        if self.running and self.rng.random() < 0.8:
            region, key = self.running.pop(self.rng.randrange(len(self.running)))
            if self.inventories[region].holding(key) is not None:
                self.inventories[region].release(key)
        region = self.rng.choice(sorted(self.inventories))
        inventory = self.inventories[region]
        if self.rng.random() < 0.3:
            machine = self.rng.choice(self.machines[region])
            state = self.rng.choice((MachineState.DRAINING, MachineState.UP))
            inventory.set_machine_state(machine, state)
        inventory.pass_time(self.now)

    def object(self) -> None:
        """Every region looks, a few plans at a time."""
        for region, watch in self.watches.items():
            bidder = self.bidders[region]
            while watch.to_check(bidder, 0):
                for objection in watch.objections(bidder, 0, self.now, 2):
                    held = self.holding.get(objection.refused.key)
                    if held is not None and held[1] == objection.refused.round_number:
                        del self.holding[objection.refused.key]

    def check(self, lots: list[Lot]) -> None:
        """The dumb twin: every region plans whatever is passed over."""
        for lot in filter(self.is_passed_over, lots):
            self.passed_over += 1
            for region, bidder in self.bidders.items():
                if bidder.abandons(lot.workload.specification) is not None:
                    continue
                position = lot.position
                planned = plan_workload(
                    self.inventories[region],
                    lot.workload,
                    position.standing,
                    self.now,
                    within_quota=position.within_quota,
                )
                assert not isinstance(planned, Plan), f"{region} has room for {lot.workload}, which is passed over"


def test_never_is_a_kind_passed_over_that_has_room() -> None:
    passed_over = 0
    for seed in range(12):
        world = PassedOver(seed)
        for _ in range(STEPS):
            lots = world.lots()
            world.check(lots)
            world.auction([lot for lot in lots if not world.is_passed_over(lot)])
            world.happen()
            world.object()
        passed_over += world.passed_over
    assert passed_over > 40, "something was passed over"


def specification(**changes: object) -> WorkloadSpecification:
    job = JobSpecification(JobName("main"), 1, TaskResources(gpus=1, gpu_model=ANY_GPU_MODEL), Emulated(60.0))
    return WorkloadSpecification("one", TenantId("ads"), (replace(job, **changes),))  # type: ignore[arg-type]  # named fields of the job


def test_workloads_are_of_one_kind_as_far_as_they_ask_for_the_same() -> None:
    one = specification()
    assert kind_of(one) == kind_of(replace(one, name="another", tenant=TenantId("vision")))
    assert kind_of(one) == kind_of(specification(entry_point=Emulated(9.0), consolidate=True))
    others = [
        specification(tasks=2),
        specification(resources=TaskResources(gpus=2)),
        replace(one, regions=(RegionId("east"),)),
    ]
    assert len({kind_of(one), *map(kind_of, others)}) == 4


def test_a_kind_finds_nothing_at_the_standing_that_found_nothing_and_at_worse_ones() -> None:
    hopeless: HopelessKinds[str] = HopelessKinds()
    hopeless.learn("large", Standing(3, 0))
    hopeless.learn("large", Standing(4, 0))
    assert hopeless.finds_nothing("large", Standing(3, 0))
    assert hopeless.finds_nothing("large", Standing(3, 1))
    assert not hopeless.finds_nothing("large", Standing(2, 9))
    assert not hopeless.finds_nothing("small", Standing(6, 0))
    hopeless.clear()
    assert not hopeless.finds_nothing("large", Standing(3, 0))


def test_a_walk_that_is_under_way_goes_on() -> None:
    walk = QueueWalk(4, 7, ended=False)
    assert next_step(walk, 7, has_room=False) == WalkStep(walk, begins=False)


@pytest.mark.parametrize(("newest", "has_room"), [(8, False), (7, True), (8, True)])
def test_news_take_a_walk_back_to_the_head_for_every_second_round(newest: int, has_room: bool) -> None:
    back = next_step(QueueWalk(4, 7, ended=False), newest, has_room=has_room)
    assert back == WalkStep(QueueWalk(4, newest, ended=False, at_head=True), begins=False)
    on = next_step(back.walk, newest + 1, has_room=True)
    assert on == WalkStep(QueueWalk(4, newest, ended=False, at_head=False), begins=False), "the other news wait"
    again = next_step(on.walk, newest + 1, has_room=False)
    assert again == WalkStep(QueueWalk(4, newest + 1, ended=False, at_head=True), begins=False)


def test_a_walk_begins_when_the_queue_was_ranked_anew_or_a_region_has_room_again() -> None:
    ended = QueueWalk(4, 7, ended=True)
    assert next_step(ended, 7, has_room=False) is None
    for newest, has_room in ((8, False), (7, True)):
        step = next_step(ended, newest, has_room=has_room)
        assert step == WalkStep(QueueWalk(5, newest, ended=False, at_head=True), begins=True)
