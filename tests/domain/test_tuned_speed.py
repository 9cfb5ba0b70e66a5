"""The speed of work by the CPUs and the memory that its tasks hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.fleet import Machine
from domain.identifiers import ClusterId, GpuModel, JobName, MachineId
from domain.placement import TaskPlacement
from domain.proportional_shares import ProportionalShares
from domain.sensitivity import SensitivityProfile
from domain.tuned_speed import NO_PROFILES, tuned_speed

MAIN, READERS = JobName("main"), JobName("readers")
BIG = Machine(MachineId("big"), GpuModel("V100"), 8, 24.0, 500.0)
ODD = Machine(MachineId("odd"), GpuModel("V100"), 3, 10.0, 100.0)
CPU_ONLY = Machine(MachineId("cpu"), GpuModel(""), 0, 64.0, 256.0)
SHARES = ProportionalShares([BIG, ODD, CPU_ONLY])
LINEAR_IN_CPUS = SensitivityProfile((1.0, 3.0, 12.0), (20.0, 62.5), ((0.2, 1.0), (0.5, 3.0), (0.5, 6.0)))


def task(
    machine: Machine, gpus: int, cpus: float, memory_gib: float, job: JobName = MAIN, number: int = 0
) -> TaskPlacement:
    return TaskPlacement(
        job, number, ClusterId("c"), machine.machine, tuple(range(gpus)), round(cpus * 1000), round(memory_gib * 1024)
    )


def test_work_is_as_fast_as_its_profile_says_relative_to_the_share() -> None:
    profiles = {MAIN: LINEAR_IN_CPUS}
    assert tuned_speed(profiles, [task(BIG, 2, 24.0, 125.0)], SHARES) == pytest.approx(2.0)
    assert tuned_speed(profiles, [task(BIG, 2, 2.0, 125.0)], SHARES) == pytest.approx(1 / 3)
    assert tuned_speed(profiles, [task(BIG, 1, 7.5, 62.5)], SHARES) == pytest.approx(1.5)


def test_the_slowest_task_and_the_slowest_job_count() -> None:
    tasks = [task(BIG, 1, 12.0, 62.5), task(BIG, 1, 3.0, 62.5, number=1)]
    assert tuned_speed({MAIN: LINEAR_IN_CPUS}, tasks, SHARES) == pytest.approx(1.0)
    both = [task(BIG, 1, 12.0, 62.5), task(BIG, 1, 6.0, 62.5, READERS)]
    assert tuned_speed({MAIN: LINEAR_IN_CPUS, READERS: LINEAR_IN_CPUS}, both, SHARES) == pytest.approx(4 / 3)


def test_what_has_no_profile_or_no_gpus_is_as_fast_with_anything() -> None:
    assert tuned_speed(NO_PROFILES, [task(BIG, 1, 0.1, 0.1)], SHARES) == 1.0
    assert tuned_speed({READERS: LINEAR_IN_CPUS}, [task(CPU_ONLY, 0, 1.0, 1.0, READERS)], SHARES) == 1.0
    assert tuned_speed({MAIN: LINEAR_IN_CPUS}, [], SHARES) == 1.0


def test_a_machine_without_gpus_has_no_share() -> None:
    with pytest.raises(KeyError):
        SHARES.of(CPU_ONLY.machine, 1)
    with pytest.raises(ValueError, match="has no GPUs"):
        SHARES.of_placement(task(BIG, 0, 1.0, 1.0))


@given(st.sampled_from([BIG, ODD]), st.integers(1, 3))
def test_never_other_than_1_with_the_share_as_it_is_charged(machine: Machine, gpus: int) -> None:
    millicpus, mebibytes = SHARES.of(machine.machine, gpus)
    held = task(machine, gpus, 0.0, 0.0)._replace(millicpus=millicpus, mebibytes=mebibytes)
    assert tuned_speed({MAIN: LINEAR_IN_CPUS}, [held], SHARES) == 1.0
