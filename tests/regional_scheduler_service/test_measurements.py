"""What is kept of what attempts report of their models and iterations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_manager.attempt_run.run import AttemptFacts, new_run
from domain.fleet import Cluster, Rack, Region
from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, RackId, RegionId, TenantId, WorkloadId
from domain.model_profile import ModelProfile
from domain.placement import AttemptKey, TaskPlacement
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Command, JobSpecification, RetryPolicy, WorkloadSpecification
from services.cluster_manager.status_messages import changes_to_proto
from services.database.packlimit_store import IterationTime
from services.database.profile_store import ReportedProfile
from services.execution.executor import AttemptPhase, AttemptStatus, JobMeasurement, TaskReport
from services.execution.measurements import measurements_of
from services.regional_scheduler.cluster_link import report_from_proto
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.measurements import iteration_times, new_profiles
from tests.cluster_manager.fleets import A100, H100, gpu_machine

C = ClusterId("c")
TRAIN, FEED = JobName("train"), JobName("feed")
REGION = Region(
    RegionId("east"),
    (
        Cluster(C, (Rack(RackId("r"), tuple(gpu_machine(f"m{number}", 4) for number in range(4))),)),
        Cluster(ClusterId("other"), (Rack(RackId("o"), (gpu_machine("o0", 8, A100),)),)),
    ),
)
MEASURED = JobMeasurement(TRAIN, iteration_s=0.5, largest_tensor_mib=392.0, model_mib=560.0)


def attempt_on(*machines: str, gpus: int = 1, measured: JobMeasurement = MEASURED) -> LiveAttempt:
    """One task on each of these machines, a machine named twice has two."""
    job = JobSpecification(TRAIN, len(machines), TaskResources(gpus=gpus), Command(("train",)))
    key = AttemptKey(WorkloadId("w"), AttemptNumber(1))
    attempt = LiveAttempt(
        run=new_run(AttemptFacts(key, 0.0, RetryPolicy(), 0)),
        tenant=TenantId("vision"),
        specification=WorkloadSpecification("vgg", TenantId("vision"), (job,)),
        standing=Standing(3, 0),
        within_quota=True,
        guaranteed=True,
        dispatched_s=0.0,
        charges={},
        placements=tuple(
            TaskPlacement(TRAIN, task, C, MachineId(machine), (task,), 1000, 1024)
            for task, machine in enumerate(machines)
        ),
    )
    attempt.reports[C] = AttemptStatus(key, AttemptPhase.RUNNING, 1.0, measured=(measured,))
    return attempt


def times_of(attempt: LiveAttempt) -> list[IterationTime]:
    return iteration_times(REGION, [attempt])


def test_a_profile_is_kept_once_until_it_is_another_one() -> None:
    attempt = attempt_on("m0", "m1")
    (profile,) = new_profiles(attempt)
    assert profile == ReportedProfile(WorkloadId("w"), TenantId("vision"), "vgg", TRAIN, 392.0, 560.0)
    attempt.profiles += (profile,)
    assert list(new_profiles(attempt)) == []
    other = MEASURED._replace(largest_tensor_mib=100.0)
    attempt.reports[C] = replace(attempt.reports[C], measured=(other,))
    assert [found.largest_tensor_mib for found in new_profiles(attempt)] == [100.0]


@pytest.mark.parametrize(
    ("machines", "spread"),
    [
        (("m0", "m0"), False),
        (("m0", "m1"), True),
        (("m0", "m0", "m0", "m0", "m1"), False),
        (("m0", "m0", "m1", "m1", "m2"), True),
    ],
)
def test_times_are_kept_by_whether_the_job_had_more_machines_than_it_needs(
    machines: tuple[str, ...], spread: bool
) -> None:
    (time,) = times_of(attempt_on(*machines))
    skew = 392.0 / 560.0
    assert time == IterationTime(TenantId("vision"), "vgg", TRAIN, len(machines), 1, H100, spread, skew, 0.5)


def test_a_declared_skew_counts_before_a_reported_one() -> None:
    attempt = attempt_on("m0", "m1")
    (job,) = attempt.specification.jobs
    declaring = replace(job, profile=ModelProfile(0.2))
    attempt.specification = replace(attempt.specification, jobs=(declaring,))
    assert [time.skew for time in times_of(attempt)] == [0.2]


def test_times_that_belong_to_no_one_size_or_place_are_not_kept() -> None:
    resized = attempt_on("m0", "m1")
    resized.revision = 1
    mixed = attempt_on("m0", "o0")
    alone = attempt_on("m0")
    gone = attempt_on("m0", "m9")
    unknown_skew = attempt_on("m0", "m1", measured=JobMeasurement(TRAIN, iteration_s=0.5))
    not_measured = attempt_on("m0", "m1", measured=MEASURED._replace(iteration_s=0.0))
    feeding = attempt_on("m0", "m1", measured=MEASURED._replace(job=FEED))
    for attempt in (resized, mixed, alone, gone, unknown_skew, not_measured, feeding):
        assert times_of(attempt) == []


def test_reports_of_tasks_are_put_together_by_job() -> None:
    reports = {
        (TRAIN, 0): TaskReport(10.0, 1.0, 0.5, 4.0, 6.0),
        (TRAIN, 1): TaskReport(9.0, 1.0, 0.75),
        (FEED, 0): TaskReport(3.0, 1.0),
    }
    assert measurements_of(reports) == (JobMeasurement(TRAIN, 0.75, 4.0, 6.0),)


def test_measurements_survive_the_way_to_the_region() -> None:
    status = AttemptStatus(
        AttemptKey(WorkloadId("w"), AttemptNumber(1)), AttemptPhase.RUNNING, 1.0, measured=(MEASURED,)
    )
    report = report_from_proto(C, 1, changes_to_proto([status], complete=False))
    assert report.attempts[0].measured == (MEASURED,)
