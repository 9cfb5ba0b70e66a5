"""What the guesses of the auction rest on: the outline of idle GPUs."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.service_world import many_machines
from data_placement.catalog import Catalog
from domain.fleet import NO_GPU_MODEL, Cluster, Machine, MachineState, Rack, Region
from domain.identifiers import (
    AttemptNumber,
    ClusterId,
    GpuModel,
    JobName,
    MachineId,
    RackId,
    RegionId,
    TenantId,
    WorkloadId,
)
from domain.placement import AttemptKey, Holding
from domain.plan import Plan
from domain.rank import QueuePosition, Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from regional_scheduler.auction import RoundOutcome, close_round
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.idle_outline import IdleMachines, IdleOutline, outline_of
from regional_scheduler.planner import plan_workload
from regional_scheduler.refusals.kinds import kind_of
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.round_opening import open_round
from regional_scheduler.rounds import AuctionSettings, Lot
from tests.regional_scheduler.auction_worlds import lots_won

A100, V100 = GpuModel("a100"), GpuModel("v100")
STANDING = Standing(1, 0)


def region_of(*machines: tuple[GpuModel, int]) -> Region:
    """One cluster with one rack of machines, each of a model and with so many GPUs."""
    rack = Rack(
        RackId("r"),
        tuple(Machine(MachineId(f"m{i}"), model, gpus, 64.0, 512.0) for i, (model, gpus) in enumerate(machines)),
    )
    return Region(RegionId("east"), (Cluster(ClusterId("c"), (rack,)),))


def gpu_job(tasks: int, gpus: int, *, model: GpuModel = A100, consolidate: bool = False) -> JobSpecification:
    resources = TaskResources(gpus=gpus, gpu_model=model)
    return JobSpecification(JobName("train"), tasks, resources, Emulated(1.0), consolidate=consolidate)


def workload_of(number: int, job: JobSpecification) -> Workload:
    name = f"w{number}"
    return Workload(WorkloadId(name), WorkloadSpecification(name, TenantId("t"), (job,)), 0.0)


def hold(inventory: RegionCapacity, plan: Plan) -> None:
    inventory.hold(Holding(AttemptKey(plan.workload, AttemptNumber(1)), STANDING, 0.0, plan.placements))


def test_the_outline_counts_idle_gpus_on_machines_that_take_work() -> None:
    inventory = RegionCapacity(region_of((A100, 8), (A100, 8), (V100, 4), (V100, 4), (NO_GPU_MODEL, 0)))
    plan = plan_workload(inventory, workload_of(0, gpu_job(1, 3)), STANDING, 0.0, within_quota=False)
    assert isinstance(plan, Plan)
    hold(inventory, plan)
    inventory.set_machine_state(MachineId("m3"), MachineState.DRAINING)
    outline = outline_of(inventory)
    assert outline.idle == (IdleMachines(A100, 5, 5, 1), IdleMachines(A100, 8, 8, 1), IdleMachines(V100, 4, 4, 1))
    assert (outline.gpus, outline.cpus) == (20, 256.0)


def test_a_full_region_has_an_empty_outline() -> None:
    inventory = RegionCapacity(region_of((A100, 2)))
    plan = plan_workload(inventory, workload_of(0, gpu_job(2, 1)), STANDING, 0.0, within_quota=False)
    assert isinstance(plan, Plan)
    hold(inventory, plan)
    assert outline_of(inventory).idle == ()


def test_looking_for_a_place_takes_nothing() -> None:
    outline = IdleOutline([IdleMachines(A100, 8, 8, 2)])
    first = outline.find([gpu_job(1, 8), gpu_job(1, 3)])
    assert first is not None
    assert (first.fragmentation, outline.idle_gpus) == (5, 16)
    outline.take(first)
    assert outline.idle_gpus == 5
    assert outline.find([gpu_job(1, 6)]) is None


def test_jobs_without_gpus_need_no_idle_ones() -> None:
    place = IdleOutline([]).find(
        [JobSpecification(JobName("read"), 9, TaskResources(cpus=1.0, memory_gib=1.0), Emulated(1.0))]
    )
    assert place is not None
    assert (place.fragmentation, place.taken) == (0, ())


@given(
    st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 8), st.booleans()), min_size=1, max_size=8),
)
def test_never_differs_from_the_planner_where_the_outline_tells_everything(
    machines: list[int], jobs: list[tuple[int, int, bool]]
) -> None:
    """One model, one rack, shares of CPUs and memory in proportion: fragmentation and room are the planner's."""
    inventory = RegionCapacity(region_of(*((A100, gpus) for gpus in machines)))
    outline = IdleOutline(outline_of(inventory).idle)
    for number, (tasks, gpus, consolidate) in enumerate(jobs):
        job = gpu_job(tasks, gpus, consolidate=consolidate)
        plan = plan_workload(inventory, workload_of(number, job), STANDING, 0.0, within_quota=False)
        place = outline.find([job])
        assert isinstance(plan, Plan) == (place is not None)
        if isinstance(plan, Plan) and place is not None:
            assert (plan.score.fragmentation, plan.score.spread) == (place.fragmentation, place.spread)
            hold(inventory, plan)
            outline.take(place)
            assert outline.idle_gpus == sum(idle.idle_gpus * idle.machines for idle in outline_of(inventory).idle)


def test_a_queue_that_is_ranked_anew_before_every_round_is_decided_many_lots_at_a_time() -> None:
    """Three regions alike: which of them wins changes with every win, so a lot without a guess would end a round."""
    fleet = many_machines(3, 1, 10)
    bidders = {one.region: RegionBidder(one, RegionCapacity(one), Catalog()) for one in fleet.regions}
    waiting = [workload_of(number, gpu_job(1, 1, model=GpuModel("A100"))) for number in range(150)]
    rng = random.Random(1)
    outcome: RoundOutcome | None = None
    decided: list[int] = []
    while sum(decided) < 100:
        rng.shuffle(waiting)
        lots = [lot_of(workload, place) for place, workload in enumerate(waiting)]
        opened = open_round(
            number=len(decided) + 1,
            scan_pass=len(decided) + 1,
            now=0.0,
            settings=AuctionSettings(16),
            participants=tuple(bidders),
            upcoming=lots,
            hints={} if outcome is None else outcome.hints(),
            hints_of_kinds={} if outcome is None else outcome.hints_of_kinds(),
        )
        closed = close_round(opened, [bidder.answer(opened, 0.0) for bidder in bidders.values()], 0.0, lots[16:32])
        assert isinstance(closed, RoundOutcome)
        for region, bidder in bidders.items():
            bidder.confirm(lots_won(closed, region), 0.0)
        won = {verdict.lot.workload.workload for verdict in closed.verdicts}
        waiting = [workload for workload in waiting if workload.workload not in won]
        decided.append(len(closed.verdicts))
        outcome = closed
    assert len(decided) <= 12, decided


def lot_of(workload: Workload, place: int) -> Lot:
    position = QueuePosition(workload.workload, STANDING, -float(place), 0.0, within_quota=True)
    return Lot(workload, position, AttemptNumber(1), kind=kind_of(workload.specification))
