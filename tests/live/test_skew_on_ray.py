"""Training reports the skew of its model to a real service, and its next attempt is consolidated."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from domain.fleet import Cluster, Fleet, Rack, Region
from domain.identifiers import ClusterId, RackId
from domain.workload import PythonCallable, WorkloadSpecification
from formats.scheduler_file import PlacementSection
from services.configuration import Configuration
from services.database.embedded import EmbeddedLayout
from tests.cluster_manager.fleets import A100, gpu_machine
from tests.live.real_service import RealService, real_service
from tests.live.real_workloads import CLOCK_SPEED, TWO_TENANTS, training
from tests.live.world import EAST
from topmast import Workload

pytestmark = pytest.mark.live

FLEET = Fleet(
    (
        Region(
            EAST,
            (
                Cluster(
                    ClusterId("east-a"),
                    (
                        Rack(RackId("ones"), tuple(gpu_machine(f"one-{number}", 1, A100) for number in range(3))),
                        Rack(RackId("twos"), tuple(gpu_machine(f"two-{number}", 2, A100) for number in range(2))),
                    ),
                ),
            ),
        ),
    )
)
"""Three tasks fit into either rack, and on fewer machines in the second."""
TRIAL_S = 120.0


def skewed(release: Path, name: str = "vgg") -> WorkloadSpecification:
    one = training(name, release, retries=1)
    entry_point = PythonCallable("tests.live.patient_training:train_a_skewed_model")
    return replace(one, jobs=(replace(one.jobs[0], tasks=3, entry_point=entry_point),))


def machines_of(workload: Workload) -> set[str]:
    return {placement.machine for placement in workload.attempts[-1].placements}


def times_of(service: RealService) -> list[tuple[bool, int]]:
    """Whether spread, and in how many attempts."""
    with psycopg.connect(EmbeddedLayout.of(service.home).url()) as connection:
        rows = connection.execute("SELECT spread, attempts FROM iteration_times WHERE total_s > 0 ORDER BY spread")
        return [(bool(spread), int(attempts)) for spread, attempts in rows.fetchall()]


def test_the_attempt_after_the_report_is_consolidated_and_so_are_workloads_of_its_name(tmp_path: Path) -> None:
    release = tmp_path / "release"
    with real_service(FLEET, TWO_TENANTS, CLOCK_SPEED) as service:
        (workload,) = service.submit([skewed(release)])
        first = service.until_progress(workload, 5.0)
        assert machines_of(first) == {"one-0", "one-1", "one-2"}, "nothing is known of it: the first rack holds it"
        known = service.until_workload(workload, lambda now: now.consolidations[0].consolidate, "its skew is known")
        (decided,) = known.consolidations
        assert (decided.reason, decided.skew, decided.skew_source) == ("above_packlimit", 0.9, "reported")
        assert "0.9 (reported by its own attempts) is above PACKLIMIT 0.378" in decided.sentence
        os.kill(service.task_processes(workload)[0], signal.SIGKILL)
        second = service.until_workload(
            workload, lambda now: now.attempts[-1].attempt == 2 and now.progress > first.progress, "goes on"
        )
        assert machines_of(second) == {"two-0", "two-1"}
        (later,) = service.submit([skewed(release)])
        service.until_progress(later, 1.0)
        assert service.workload(later).consolidations[0].skew_source in {"of_its_name", "reported"}
        release.touch()
        service.until_all_ended()
        # Of three machines with one GPU each none could hold two tasks; two of two GPUs would have done.
        assert times_of(service) == [(False, 1), (True, 2)]
        service.check()


@pytest.mark.nightly
def test_after_its_trial_an_attempt_goes_on_on_fewer_machines(tmp_path: Path) -> None:
    release = tmp_path / "release"
    configuration = Configuration(placement=PlacementSection(trial_s=TRIAL_S))
    with real_service(FLEET, TWO_TENANTS, CLOCK_SPEED, configuration) as service:
        (workload,) = service.submit([skewed(release)])
        (unknown,) = service.workload(workload).consolidations
        assert "the attempt that reports it is its trial" in unknown.sentence
        moved = service.until_workload(
            workload, lambda now: len(now.attempts) == 2 and now.attempts[-1].started_s is not None, "is moved"
        )
        first, second = moved.attempts
        assert first.started_s is not None
        assert first.ended_s is not None
        assert first.ended_s - first.started_s >= TRIAL_S
        assert machines_of(moved) == {"two-0", "two-1"}
        assert (moved.failures, first.end) == (0, "migrated")
        assert second.progress_at_start > 0, "no work was lost"
        release.touch()
        service.until_all_ended()
        service.check()
