"""Rounds over what runs, on virtual time: when they are held, what they see, and that what they decide is carried out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from cluster_manager.capacity.errors import InventoryError, OverCommitted
from cluster_manager.tuning.demand import Demand, GpuAmounts
from cluster_manager.tuning.mechanism import JobAllocation, MachineRoom, PlacedJob, RunnableJob
from cluster_manager.tuning.tune import Tune
from domain.fleet import Fleet
from domain.identifiers import TenantId, WorkloadId
from domain.placement_changes import ImpossibleAction
from domain.plan import ScaleIn, ScaleOut, TaskName
from domain.scaling import ScalingPoint
from formats.snapshot_file import dump_snapshot, parse_snapshot
from formats.trace import TraceRow
from formats.trace_workload import JOB_NAME
from regional_scheduler.adjustment import AdjustableAttempt, Resize
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.requested_plans import plan_resize
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.registry import policies
from tests.simulator.engine.checked_run import NO_COSTS, CheckedRun, Record, checked_run, machine, region, unlimited
from tests.simulator.engine.profiled_run import PROFILES, ProfiledRun, fleet_of, profiled_run, trained

FIFO = policies()["fifo"]
ONE_MACHINE = Fleet((region("east", [machine("e0", 4)]),))
EVERY_MINUTE = NO_COSTS.model_copy(update={"round_s": 60.0})


@dataclass(frozen=True, slots=True)
class AllThatFit:
    """Whoever is first by key gets all tasks that it may have and that fit."""

    name: str = "all_that_fit"

    def resize(
        self, region: RegionCapacity, attempts: Sequence[AdjustableAttempt], now: float, *, anything_waits: bool
    ) -> Sequence[Resize]:
        resizes: list[Resize] = []
        with region.tentatively():
            for attempt in attempts:
                for tasks in range(attempt.specification.jobs[0].greatest_tasks, len(attempt.placements), -1):
                    try:
                        plan = plan_resize(region, attempt, JOB_NAME, tasks, now)
                    except ImpossibleAction:
                        continue
                    apply_plan(region, plan, now)
                    resizes += [action for action in plan.actions if isinstance(action, ScaleIn | ScaleOut)]
                    break
        return resizes


@dataclass(frozen=True, slots=True)
class Fixed:
    """Everybody holds the same CPUs for each GPU; remembers whom it was asked about, and what was held."""

    millicpus: int
    asked: list[list[int]] = field(default_factory=list)
    name: str = "fixed"
    reverts_others: bool = True

    def allocate(self, jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom]) -> list[JobAllocation | None]:
        return [None] * len(jobs)

    def retuned(self, jobs: Sequence[PlacedJob], machines: Sequence[MachineRoom]) -> list[GpuAmounts]:
        self.asked.append([job.held.millicpus for job in jobs for _ in range(job.gpus)])
        return [GpuAmounts(self.millicpus, job.held.mebibytes) for job in jobs]

    def asks(self, demand: Demand) -> tuple[GpuAmounts, ...]:
        return (demand.share,)


def elastic_row(name: str, submit_s: float, duration_s: float) -> TraceRow:
    """One task of one GPU, up to four."""
    return TraceRow(
        WorkloadId(name), TenantId("t"), submit_s, duration_s, gpus=1, tasks=1, min_tasks=1, max_tasks=4, model="lean"
    )


def events_of(run: CheckedRun | ProfiledRun, kind: str) -> list[float]:
    return [float(str(record["t"])) for record in run.log if record["event"] == kind]


def test_what_is_left_over_is_given_out_at_the_next_round() -> None:
    policy = replace(FIFO, elastic=AllThatFit())
    run = checked_run(policy, [elastic_row("a", 10.0, 400.0)], ONE_MACHINE, settings=EVERY_MINUTE)
    # The run begins with its first submission: at 10, where the first round is held at once and finds four GPUs.
    assert events_of(run, "resized") == [10.0]
    assert run.ends() == {"a": 110.0}


def test_work_is_as_fast_as_the_curve_of_its_job_says() -> None:
    curve = (ScalingPoint(1, 1.0), ScalingPoint(2, 1.6), ScalingPoint(4, 2.0))
    measured = replace(elastic_row("a", 0.0, 400.0), scaling=curve)
    run = checked_run(replace(FIFO, elastic=AllThatFit()), [measured], ONE_MACHINE, settings=EVERY_MINUTE)
    assert run.ends() == {"a": 200.0}


def test_rounds_come_at_multiples_of_the_period_after_something_happened() -> None:
    tuning = Fixed(2000)
    rows = [trained("a", 0.0, 1000.0, "lean"), trained("b", 70.0, 100.0, "lean")]
    run = profiled_run(replace(FIFO, tuning=tuning), rows, ONE_MACHINE, settings=EVERY_MINUTE)
    # After both have begun, and after the first has ended; between, nothing happens and no round is held.
    assert [len(held) for held in tuning.asked] == [1, 2, 1]
    assert events_of(run, "tuned") == [0.0, 120.0]


def test_the_tuning_sees_what_the_elastic_policy_has_decided() -> None:
    tuning = Fixed(1000)
    policy = replace(FIFO, elastic=AllThatFit(), tuning=tuning)
    run = profiled_run(policy, [elastic_row("a", 0.0, 400.0)], ONE_MACHINE, settings=EVERY_MINUTE)
    assert [len(held) for held in tuning.asked][:1] == [4]
    assert events_of(run, "resized") == events_of(run, "tuned") == [0.0]


def test_what_starts_in_the_room_that_a_round_makes_is_tuned_at_the_same_instant() -> None:
    tuning = Fixed(1000)
    asking = replace(trained("a", 0.0, 1000.0, "lean"), cpus=4.0, memory_gib=20.0)
    rows = [asking, trained("b", 0.0, 1000.0, "lean"), trained("c", 0.0, 1000.0, "lean")]
    run = profiled_run(replace(FIFO, tuning=tuning), rows, fleet_of(3), settings=EVERY_MINUTE)
    # Of 9 CPUs the third finds its 3 only when the second has given back 2.
    assert run.starts == {"a": 0.0, "b": 0.0, "c": 0.0}
    assert tuning.asked[:2] == [[3000], [1000, 3000]]
    assert events_of(run, "tuned") == [0.0, 0.0]


def test_a_run_from_a_snapshot_begins_with_a_round() -> None:
    rows = [trained("hungry", 0.0, 1000.0, "hungry"), trained("lean", 0.0, 1000.0, "lean")]
    given = SimulationInput("test", rows, fleet_of(2), unlimited(rows), profiles=PROFILES)
    before = Simulation(given, FIFO, EVERY_MINUTE.model_copy(update={"stop_after_s": 100.0}), 1)
    before.run()
    taken = parse_snapshot(dump_snapshot(before.snapshot()))
    log: list[Record] = []
    resumed = SimulationInput("test", [], fleet_of(2), unlimited(rows), snapshot=taken, profiles=PROFILES)
    Simulation(resumed, replace(FIFO, tuning=Tune()), EVERY_MINUTE, 1, lambda event: log.append(event.as_json())).run()
    # Both held 3 CPUs: the one needs 1 of them, the other gets the rest, and nothing else happens before.
    told = {(event["t"], event["workload"]) for event in log if event["event"] == "tuned"}
    assert told == {(100.0, "lean"), (100.0, "hungry")}


def test_a_policy_that_adjusts_nothing_has_no_rounds() -> None:
    plain = checked_run(FIFO, [elastic_row("a", 0.0, 400.0)], ONE_MACHINE)
    assert plain.record.counts.events == 2
    assert plain.ends() == {"a": 400.0}


def test_more_than_there_is_is_refused() -> None:
    with pytest.raises(OverCommitted):
        profiled_run(replace(FIFO, tuning=Fixed(10_000_000)), [trained("a", 0.0, 10.0, "lean")], ONE_MACHINE)


@dataclass(frozen=True, slots=True)
class TakesTheBaseTask:
    """Wrong: a base task is not flexible."""

    name: str = "takes_the_base_task"

    def resize(
        self, region: RegionCapacity, attempts: Sequence[AdjustableAttempt], now: float, *, anything_waits: bool
    ) -> Sequence[Resize]:
        return [ScaleIn(attempt.key, (TaskName(JOB_NAME, 0),)) for attempt in attempts]


def test_a_base_task_is_never_taken_away() -> None:
    with pytest.raises((ImpossibleAction, InventoryError)):
        checked_run(replace(FIFO, elastic=TakesTheBaseTask()), [elastic_row("a", 0.0, 10.0)], ONE_MACHINE)


def test_a_period_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="round_s"):
        SimulationSettings(round_s=0.0)
