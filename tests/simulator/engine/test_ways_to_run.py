"""Fungible and heterogeneous workloads on machines on loan: worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from domain.fleet import Cluster, Fleet, Rack, Region
from domain.identifiers import ClusterId, GpuModel, RackId, RegionId
from formats.trace import TraceRow
from formats.trace_workload import JOB_NAME
from simulator.engine.settings import LoanedSettings, SimulationSettings
from simulator.engine.ways_to_run import LOANED_PART
from simulator.inputs.actions import ResizeAt
from simulator.inputs.loans import LoanSchedule, LoanStep
from simulator.policies.registry import policies
from tests.simulator.engine.checked_run import NO_COSTS, V100, CheckedRun, checked_run, machine, row

T4 = GpuModel("T4")
TRAINING, SERVING = ClusterId("training"), ClusterId("serving")
FLEET = Fleet(
    (
        Region(
            RegionId("east"),
            (
                Cluster(TRAINING, (Rack(RackId("t"), (machine("t0", 4),)),)),
                Cluster(SERVING, (Rack(RackId("s"), (machine("s0", 4, T4), machine("s1", 4, T4))),)),
            ),
        ),
    )
)
NOTHING_LENT = LoanSchedule((LoanStep(0.0, SERVING, 0),))
ALWAYS_LENT = LoanSchedule((LoanStep(0.0, SERVING, 2),))


def fungible(name: str, submit_s: float, gpus: int, *, yes: bool = True) -> TraceRow:
    return replace(row(name, submit_s, 100.0, gpus), gpu_model=V100, fungible=yes, tasks=gpus)


def run(rows: list[TraceRow], loans: LoanSchedule = ALWAYS_LENT, **loaned: float) -> CheckedRun:
    settings: SimulationSettings = NO_COSTS.model_copy(
        update={"loaned": LoanedSettings.model_validate({"gpus_per_gpu": 2, **loaned})}
    )
    return checked_run(policies()["fifo"], rows, FLEET, settings=settings, loans=loans)


def clusters_of(done: CheckedRun, name: str) -> list[tuple[str, str, int]]:
    """Of the last start: the job and the cluster of its tasks, and how many."""
    (started,) = [one for one in done.log if one["event"] == "started" and one.get("workload") == name][-1:]
    placement = started["placement"]
    assert isinstance(placement, list)
    tasks = [(one["job"], str(one["machine"])[0]) for one in placement if isinstance(one, dict)]
    return [(str(job), where, tasks.count((job, where))) for job, where in sorted(set(tasks))]


def test_what_cannot_scale_prefers_training_machines_and_takes_twice_the_loaned_gpus_else() -> None:
    done = run(
        [fungible("a", 0.0, 4), fungible("b", 10.0, 4), fungible("c", 20.0, 2), fungible("d", 30.0, 1, yes=False)]
    )
    assert clusters_of(done, "a") == [("main", "t", 4)]
    assert clusters_of(done, "b") == [("main", "s", 8)]
    assert done.starts() == {"a": 0.0, "b": 10.0, "c": 100.0, "d": 100.0}
    assert done.ends()["b"] == 110.0, "as fast as on as many training GPUs as it asked for"


def test_a_reclaimed_one_may_go_on_with_training_gpus() -> None:
    loans = LoanSchedule((LoanStep(0.0, SERVING, 2), LoanStep(50.0, SERVING, 0)))
    done = run([fungible("a", 0.0, 4), fungible("b", 10.0, 4)], loans)
    assert done.starts()["b"] == 10.0
    assert clusters_of(done, "b") == [("main", "t", 4)]
    assert done.ends()["b"] == 100.0 + 60.0, "40 s were saved when it left"


def test_an_elastic_one_prefers_machines_on_loan_and_grows_there() -> None:
    elastic = replace(fungible("e", 0.0, 2), min_tasks=2, max_tasks=4)
    settings = NO_COSTS.model_copy(update={"loaned": LoanedSettings(gpus_per_gpu=2)})
    grows = [ResizeAt(50.0, elastic.workload_id, JOB_NAME, 8)]
    done = checked_run(policies()["fifo"], [elastic], FLEET, settings=settings, loans=ALWAYS_LENT, actions=grows)
    assert clusters_of(done, "e") == [("main", "s", 4)]
    assert done.ends() == {"e": 75.0}, "half of the work in half of the time"


def test_heterogeneous_ones_run_on_both_at_once_only_where_nothing_else_is_possible() -> None:
    rows = [fungible("a", 0.0, 2, yes=False), fungible("b", 10.0, 4, yes=False), fungible("c", 500.0, 4, yes=False)]
    done = run(rows, heterogeneous_share=1.0, heterogeneous_speed=0.5)
    assert clusters_of(done, "b") == [(LOANED_PART, "s", 4), ("main", "t", 2)]
    assert done.ends()["b"] == 210.0, "at half the speed"
    assert clusters_of(done, "c") == [("main", "t", 4)]


def test_those_that_may_be_heterogeneous_come_after_all_others() -> None:
    """By their names x and y may, h and z may not; y starts at once, for nothing else waits."""
    rows = [
        fungible("y", 0.0, 4, yes=False),
        fungible("x", 10.0, 4, yes=False),
        fungible("h", 20.0, 4, yes=False),
        fungible("z", 30.0, 4, yes=False),
    ]
    starts = run(rows, NOTHING_LENT, heterogeneous_share=0.5).starts()
    assert starts == {"y": 0.0, "h": 100.0, "z": 200.0, "x": 300.0}
    assert run(rows, NOTHING_LENT).starts()["x"] == 100.0, "where none may, they come in their order"
