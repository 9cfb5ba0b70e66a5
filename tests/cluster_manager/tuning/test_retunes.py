"""From what a mechanism says to actions on attempts: in an order in which each is possible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.tuning.demand import DemandBook, GpuAmounts
from cluster_manager.tuning.mechanism import MachineRoom
from cluster_manager.tuning.proportional import Proportional
from cluster_manager.tuning.retunes import TunableJob, TunableMachine, retunes, share_of, share_on
from cluster_manager.tuning.tune import Tune
from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from domain.plan import Retune, TaskAmounts, TaskName
from domain.sensitivity import SensitivityProfile, held_per_gpu
from tests.cluster_manager.tuning.worlds import MACHINE, SHARE
from tests.domain.random_profiles import profiles

SENSITIVE = SensitivityProfile((1.0, 3.0, 12.0), (62.5,), ((0.3,), (1.0,), (3.0,)))
INSENSITIVE = SensitivityProfile((1.0,), (20.0,), ((1.0,),))
NOTHING = MachineRoom(0, 0, 0)


def key(name: str) -> AttemptKey:
    return AttemptKey(WorkloadId(name), AttemptNumber(1))


def task(number: int, machine: str, gpus: tuple[int, ...], millicpus: int, mebibytes: int) -> TaskPlacement:
    return TaskPlacement(JobName("train"), number, ClusterId("c"), MachineId(machine), gpus, millicpus, mebibytes)


def shared(number: int, machine: str, gpus: tuple[int, ...]) -> TaskPlacement:
    """A task with its proportional share of a machine as in Synergy §5.1."""
    return task(number, machine, gpus, 3_000 * len(gpus), 64_000 * len(gpus))


def machine_with(*placements: TaskPlacement, capacity: MachineRoom = MACHINE) -> TunableMachine:
    gpus = sum(len(each.gpu_indices) for each in placements)
    cpus, memory = sum(each.millicpus for each in placements), sum(each.mebibytes for each in placements)
    free = MachineRoom(capacity.gpus - gpus, capacity.millicpus - cpus, capacity.mebibytes - memory)
    return TunableMachine(capacity, free)


def test_who_releases_comes_before_who_takes() -> None:
    takes, releases = shared(0, "m", (0, 1, 2, 3)), shared(0, "m", (4, 5, 6, 7))
    jobs = [TunableJob(key("a"), (takes,), SENSITIVE), TunableJob(key("b"), (releases,), INSENSITIVE)]
    machines = {MachineId("m"): machine_with(takes, releases)}
    assert retunes(Tune(), jobs, machines, DemandBook()) == (
        Retune(key("b"), (TaskAmounts(TaskName(JobName("train"), 0), 4_000, 4 * 20 * 1024),)),
        Retune(key("a"), (TaskAmounts(TaskName(JobName("train"), 0), 20_000, 4 * 64_000),)),
    )


def test_what_does_not_change_is_not_mentioned() -> None:
    held = shared(0, "m", (0, 1))
    jobs = [TunableJob(key("a"), (held,), None)]
    assert retunes(Tune(), jobs, {MachineId("m"): machine_with(held)}, DemandBook()) == ()


def test_tasks_on_several_machines_hold_the_same_per_gpu() -> None:
    placements = (shared(0, "m", (0, 1)), shared(1, "n", (0, 1)), shared(2, "n", (2,)))
    machines = {MachineId("m"): machine_with(placements[0]), MachineId("n"): machine_with(*placements[1:])}
    (retune,) = retunes(Tune(), [TunableJob(key("a"), placements, SENSITIVE)], machines, DemandBook())
    # Three GPUs of machine n: 8 CPUs for each, though m has more.
    assert [each.millicpus for each in retune.amounts] == [16_000, 16_000, 8_000]


def test_what_others_hold_is_not_given_out() -> None:
    held = shared(0, "m", (0,))
    machines = {MachineId("m"): TunableMachine(MACHINE, MachineRoom(0, 2_000, 0))}
    (retune,) = retunes(Tune(), [TunableJob(key("a"), (held,), SENSITIVE)], machines, DemandBook())
    assert retune.amounts[0].millicpus == 5_000


def test_proportional_gives_back_what_tuning_gave() -> None:
    held = task(0, "m", (0,), 12_000, 100_000)
    machines = {MachineId("m"): machine_with(held)}
    (retune,) = retunes(Proportional(), [TunableJob(key("a"), (held,), SENSITIVE)], machines, DemandBook())
    assert retune.amounts[0][1:] == (3_000, 64_000)


def test_shares() -> None:
    assert share_of(MACHINE) == SHARE
    assert share_on([MACHINE, MachineRoom(4, 24_000, 1024)]) == GpuAmounts(3_000, 256)
    with pytest.raises(ValueError, match="without GPUs"):
        share_of(NOTHING)


@st.composite
def running(draw: st.DrawFn) -> list[TunableJob]:
    """Up to twelve jobs on two machines, with their share or the base of some other time."""
    free = {"m": 8, "n": 8}
    jobs: list[TunableJob] = []
    for number in range(draw(st.integers(1, 12))):
        profile = draw(st.none() | profiles(3))
        placements: list[TaskPlacement] = []
        for name in sorted(free):
            gpus = draw(st.integers(0, min(3, free[name])))
            if gpus:
                indices = tuple(range(8 - free[name], 8 - free[name] + gpus))
                cpus, memory = draw(st.integers(1, 3_000)), draw(st.integers(1, 64_000))
                placements.append(task(len(placements), name, indices, gpus * cpus, gpus * memory))
                free[name] -= gpus
        if placements:
            jobs.append(TunableJob(key(f"w{number}"), tuple(placements), profile))
    return jobs


@given(running())
def test_never_more_than_there_is_after_any_of_the_retunes(jobs: list[TunableJob]) -> None:
    held = {(job.attempt, TaskName(task.job, task.task)): task for job in jobs for task in job.placements}
    machines = {
        MachineId(name): machine_with(*[task for task in held.values() if task.machine == name]) for name in ("m", "n")
    }
    for retune in retunes(Tune(), jobs, machines, DemandBook()):
        for name, millicpus, mebibytes in retune.amounts:
            placement = held[retune.attempt, name]
            held[retune.attempt, name] = placement._replace(millicpus=millicpus, mebibytes=mebibytes)
        for machine in machines:
            room = machine_with(*[task for task in held.values() if task.machine == machine]).free
            assert min(room) >= 0
    for job in jobs:
        if job.profile is not None:
            mine = [task for (attempt, _), task in held.items() if attempt == job.attempt]
            assert job.profile.speed(held_per_gpu(mine), SHARE.per_gpu) >= 1 - 1e-9
