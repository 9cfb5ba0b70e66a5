"""Emulated work in the service and work in a simulation come to the same: what is saved, how fast it is, when it is done."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from cluster_manager.attempt_run.events import PlaceFreed, Started
from cluster_manager.attempt_run.run import facts_of, new_run
from domain.events import JsonValue
from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, ClusterId, GpuModel, JobName, MachineId, TenantId, WorkloadId
from domain.placement import TaskPlacement
from domain.rank import Standing
from domain.resources import Quota, TaskResources
from domain.tenant import Tenant
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from services.cluster_manager.status_messages import orders_from_proto, placements_from_proto
from services.execution.emulation import Emulation
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.orders import attempt_plan, resize_request
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.actions import ResizeAt
from simulator.policies.registry import policies
from tests.execution.orders import key, order
from tests.simulator.engine.checked_run import checked_run, machine, region, row
from topmast.v1.cluster_manager_pb2 import AttemptPlan, ResizeAttemptRequest

_BEGAN_TO_STOP_S = 100.0
_MODELS = (GpuModel("K80"), GpuModel("V100"))
_ONE_GPU = Fleet((region("east", [machine("e0", 1)]),))


def _work(duration_s: float, checkpoint_interval_s: float, stop_grace_s: float) -> WorkloadSpecification:
    job = JobSpecification(
        JobName("main"), 1, TaskResources(1, ANY_GPU_MODEL), Emulated(duration_s, checkpoint_interval_s)
    )
    return WorkloadSpecification("w", TenantId("t"), (job,), stop_grace_s=stop_grace_s)


def _saving_in(save_s: float) -> SimulationSettings:
    costs = CostSettings(container_start_s=0.0, checkpoint_save_s=save_s, restore_s=0.0, checkpoint_interval_s=0.0)
    return SimulationSettings(costs=costs)


def _simulated(specification: WorkloadSpecification, save_s: float) -> tuple[float, float]:
    """When it has left for a shorter workload, and what it keeps."""
    run = checked_run(
        policies()["srtf"],
        [row("short", _BEGAN_TO_STOP_S, 20.0, 1)],
        _ONE_GPU,
        settings=_saving_in(save_s),
        workloads=[Workload(WorkloadId("w"), specification, 0.0)],
    )
    (evicted,) = [event for event in run.log if event["event"] == "evicted"]
    return float(str(evicted["t"])), float(str(evicted["checkpoint_progress"]))


def _emulated(specification: WorkloadSpecification, save_s: float) -> tuple[float, float]:
    emulation = Emulation(checkpoint_time_s=save_s)
    emulation.execute(order(*specification.jobs), 0.0)
    changed = emulation.stop(key(), specification.stop_grace_s, _BEGAN_TO_STOP_S)
    if not changed[-1].ended:
        changed = emulation.advance(_BEGAN_TO_STOP_S + 1e6)
    return changed[-1].since_s, changed[-1].checkpoint_progress


@pytest.mark.parametrize("interval_s", [0.0, 30.0])
@pytest.mark.parametrize("save_s", [0.0, 20.0, 60.0])
@pytest.mark.parametrize("grace_s", [0.0, 10.0, 20.0, 600.0])
def test_a_stop_takes_as_long_and_keeps_as_much(grace_s: float, save_s: float, interval_s: float) -> None:
    specification = _work(1000.0, interval_s, grace_s)
    assert _simulated(specification, save_s) == _emulated(specification, save_s)


def test_what_a_grace_is_too_short_for_is_not_saved() -> None:
    assert _simulated(_work(1000.0, 30.0, stop_grace_s=10.0), save_s=20.0) == (110.0, 90.0)
    assert _simulated(_work(1000.0, 30.0, stop_grace_s=20.0), save_s=20.0) == (120.0, 100.0)


@pytest.mark.parametrize(("grace_s", "gone_s", "kept"), [(10.0, 110.0, 90.0), (20.0, 120.0, 100.0)])
def test_one_that_leaves_as_a_snapshot_is_taken_goes_on_leaving(grace_s: float, gone_s: float, kept: float) -> None:
    rows = [row("short", _BEGAN_TO_STOP_S, 20.0, 1)]
    works = [Workload(WorkloadId("w"), _work(1000.0, 30.0, grace_s), 0.0)]
    tenants = (Tenant(TenantId("t"), 0, Quota.of({ANY_GPU_MODEL: 100})),)
    settings, policy = _saving_in(20.0), policies()["srtf"]
    first = Simulation(
        SimulationInput("test", rows, _ONE_GPU, tenants, workloads=works),
        policy,
        settings.model_copy(update={"stop_after_s": _BEGAN_TO_STOP_S + 5.0}),
        1,
    )
    first.run()
    log: list[dict[str, JsonValue]] = []
    after = SimulationInput.of_snapshot(first.snapshot(), "test")
    Simulation(after, policy, settings, 1, lambda event: log.append(event.as_json())).run()
    (evicted,) = [event for event in log if event["event"] == "evicted"]
    assert (evicted["t"], evicted["checkpoint_progress"]) == (gone_s, kept)


def test_workloads_of_a_trace_have_the_time_that_saving_takes() -> None:
    rows = [row("long", 0.0, 1000.0, 1), row("short", _BEGAN_TO_STOP_S, 20.0, 1)]
    run = checked_run(policies()["srtf"], rows, _ONE_GPU, settings=_saving_in(150.0))
    (evicted,) = [event for event in run.log if event["event"] == "evicted"]
    assert (evicted["t"], evicted["checkpoint_progress"]) == (_BEGAN_TO_STOP_S + 150.0, _BEGAN_TO_STOP_S)


def _in_two_clusters(duration_s: tuple[float, float], base: int, most: tuple[int, int]) -> WorkloadSpecification:
    """One job in each of two clusters, for each has the GPUs that one of them asks for."""
    jobs = tuple(
        JobSpecification(JobName(f"of-{model}"), base, TaskResources(1, model), Emulated(duration), most_tasks)
        for model, duration, most_tasks in zip(_MODELS, duration_s, most, strict=True)
    )
    return WorkloadSpecification("w", TenantId("t"), jobs)


class _Clusters:
    """What a region asks two clusters for, as they read it."""

    def __init__(self, specification: WorkloadSpecification) -> None:
        self.attempt = LiveAttempt(
            run=new_run(facts_of(key(), specification, 0.0, 0)),
            tenant=specification.tenant,
            specification=specification,
            standing=Standing(0, 0),
            within_quota=True,
            guaranteed=True,
            dispatched_s=0.0,
            charges={},
            placements=self.placed({job.name: job.tasks for job in specification.jobs}),
        )
        self.emulations = {cluster: Emulation() for cluster in self.attempt.clusters}
        for cluster, emulation in self.emulations.items():
            plan = AttemptPlan.FromString(attempt_plan(self.attempt, cluster).SerializeToString())
            emulation.execute(orders_from_proto([plan])[0], 0.0)

    @staticmethod
    def placed(tasks: Mapping[JobName, int]) -> tuple[TaskPlacement, ...]:
        return tuple(
            TaskPlacement(name, task, ClusterId(f"c-{name}"), MachineId(f"m-{name}"), (task,), 1000, 1024)
            for name, count in sorted(tasks.items())
            for task in range(count)
        )

    def resize(self, tasks: Mapping[JobName, int], now: float) -> None:
        self.attempt.placements = self.placed(tasks)
        self.attempt.revision += 1
        for cluster, emulation in self.emulations.items():
            request = resize_request(self.attempt, cluster)
            request = ResizeAttemptRequest.FromString(request.SerializeToString())
            placements = placements_from_proto(request.placements)
            emulation.resize(key(), placements, request.revision, request.work_rate, now)

    def done_s(self) -> float:
        """When the last of them has completed its job."""
        return max(one.since_s for emulation in self.emulations.values() for one in emulation.advance(math.inf))


@pytest.mark.parametrize("grown", [(2, 1), (1, 2), (2, 2), (2, 3), (4, 4)])
@pytest.mark.parametrize("durations", [(1000.0, 1000.0), (1000.0, 300.0)])
def test_jobs_in_two_clusters_advance_together_when_one_or_both_grow(
    grown: tuple[int, int], durations: tuple[float, float]
) -> None:
    specification = _in_two_clusters(durations, 1, (4, 4))
    jobs = [job.name for job in specification.jobs]
    clusters = _Clusters(specification)
    clusters.resize(dict(zip(jobs, (grown[0], 1), strict=True)), 50.0)
    clusters.resize(dict(zip(jobs, grown, strict=True)), 60.0)
    racks = [[machine(f"e-{model}", 4, model)] for model in _MODELS]
    run = checked_run(
        policies()["fifo"],
        [],
        Fleet((region("east", *racks),)),
        actions=[
            ResizeAt(50.0, WorkloadId("w"), jobs[0], grown[0]),
            ResizeAt(60.0, WorkloadId("w"), jobs[1], grown[1]),
        ],
        workloads=[Workload(WorkloadId("w"), specification, 0.0)],
    )
    assert clusters.done_s() == pytest.approx(run.ends()["w"])
    assert run.ends()["w"] == pytest.approx(60.0 + (1000.0 - 60.0) / min(grown))


def test_an_attempt_in_two_clusters_goes_on_at_its_rate_after_a_restart_of_one() -> None:
    specification = _in_two_clusters((100.0, 100.0), 1, (2, 2))
    clusters = _Clusters(specification)
    clusters.resize({job.name: 2 for job in specification.jobs}, 50.0)
    clusters.attempt.take(PlaceFreed(0.0))
    clusters.attempt.take(Started(1.0))  # 0 would say that it has not started; its change says where it goes on
    clusters.attempt.changed = dict.fromkeys(clusters.emulations, (50.0, 50.0))
    first = clusters.attempt.clusters[0]
    plan = AttemptPlan.FromString(attempt_plan(clusters.attempt, first).SerializeToString())
    clusters.emulations[first] = Emulation()
    clusters.emulations[first].execute(orders_from_proto([plan])[0], 60.0)
    assert {emulation.next_due_s() for emulation in clusters.emulations.values()} == {75.0}
