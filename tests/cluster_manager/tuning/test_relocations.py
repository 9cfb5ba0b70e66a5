"""The local search that moves jobs between machines: what it finds, what it never does, and how near the best it comes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.tuning.demand import DemandBook, GpuAmounts
from cluster_manager.tuning.mechanism import MachineRoom, Part, RunnableJob, total_speed
from cluster_manager.tuning.placing import place_on, place_tuning
from cluster_manager.tuning.relocations import relocated
from cluster_manager.tuning.round_arrays import (
    NOT_PLACED,
    RoundArrays,
    allocations_of,
    arrays_of,
    descending_demand,
    runnable,
    speed_of,
)
from cluster_manager.tuning.tune import Tune
from domain.sensitivity import SensitivityProfile
from tests.cluster_manager.tuning.worlds import MACHINE, check_round, job_of, rounds

SENSITIVE = SensitivityProfile((1.0, 3.0, 5.0), (62.5,), ((0.3,), (1.0,), (2.0,)))
INSENSITIVE = SensitivityProfile((1.0,), (20.0,), ((1.0,),))
PRICES = np.array([1 / 24_000, 0.3 / (500 * 1024)])
SMALL = MachineRoom(4, 12_000, 250 * 1024)


def placed_on(jobs: Sequence[RunnableJob], machines: Sequence[int], rooms: Sequence[MachineRoom]) -> RoundArrays:
    """All with their base."""
    arrays = arrays_of(jobs, rooms)
    for job, machine in enumerate(machines):
        place_on(arrays, job, machine, 0)
    return arrays


def test_a_sensitive_job_changes_places_with_an_insensitive_one() -> None:
    book = DemandBook()
    jobs = [job_of(book, 4, model) for model in (SENSITIVE, SENSITIVE, INSENSITIVE, INSENSITIVE)]
    arrays = placed_on(jobs, [0, 0, 1, 1], [MACHINE, MACHINE])
    relocated(arrays, PRICES)
    found = allocations_of(arrays, jobs)
    check_round(jobs, [MACHINE, MACHINE], found)
    assert {each.parts for each in found[:2] if each} == {each.parts for each in found[2:] if each}
    assert [each.amounts.millicpus for each in found if each is not None] == [5_000, 5_000, 1_000, 1_000]


def test_a_large_job_changes_places_with_several_small_ones() -> None:
    book = DemandBook()
    jobs = [job_of(book, gpus, SENSITIVE) for gpus in (4, 4)] + [job_of(book, 2, INSENSITIVE) for _ in range(4)]
    arrays = placed_on(jobs, [0, 0, 1, 1, 1, 1], [MACHINE, MACHINE])
    relocated(arrays, PRICES)
    assert speed_of(arrays) == 2 * 2.0 + 4
    check_round(jobs, [MACHINE, MACHINE], allocations_of(arrays, jobs))


def test_without_trials_everything_stays() -> None:
    book = DemandBook()
    jobs = [job_of(book, 4, model) for model in (SENSITIVE, SENSITIVE, INSENSITIVE, INSENSITIVE)]
    arrays = placed_on(jobs, [0, 0, 1, 1], [MACHINE, MACHINE])
    relocated(arrays, PRICES, trials=0)
    assert [each.parts for each in allocations_of(arrays, jobs) if each] == [(Part(at, 4),) for at in (0, 0, 1, 1)]


@given(rounds(most_machines=4), st.integers(0, 200))
def test_never_slower_and_never_beyond_the_machines(
    given_round: tuple[list[RunnableJob], list[MachineRoom]], trials: int
) -> None:
    jobs, machines = given_round
    arrays = arrays_of(jobs, machines)
    place_tuning(arrays, descending_demand(arrays, runnable(jobs, machines)))
    before, runs = speed_of(arrays), (arrays.level != NOT_PLACED).tolist()
    relocated(arrays, PRICES, trials)
    found = allocations_of(arrays, jobs)
    check_round(jobs, machines, found)
    assert (arrays.level != NOT_PLACED).tolist() == runs
    assert speed_of(arrays) >= before - 1e-9
    # What the arrays say is free is what the allocations leave.
    for machine, room in enumerate(machines):
        held = [(part.gpus, each.amounts) for each in found if each for part in each.parts if part.machine == machine]
        left = [room.gpus, room.millicpus, room.mebibytes]
        for gpus, amounts in held:
            left = [left[0] - gpus, left[1] - gpus * amounts.millicpus, left[2] - gpus * amounts.mebibytes]
        assert arrays.free[machine].tolist() == left
        members = sorted(arrays.member[machine, : arrays.members[machine]].tolist())
        assert members == [job for job, each in enumerate(found) if each and machine in {p.machine for p in each.parts}]


def best_of_all(jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom]) -> float:
    """The greatest speed of any way to put each job on one machine with one of its options."""
    best = 0.0
    for places in itertools.product(range(len(machines)), repeat=len(jobs)):
        gpus = [
            sum(job.gpus for job, at in zip(jobs, places, strict=True) if at == machine)
            for machine in range(len(machines))
        ]
        if any(asked > room.gpus for asked, room in zip(gpus, machines, strict=True)):
            continue
        speed = 0.0
        for machine, room in enumerate(machines):
            speed += _best_on([job for job, at in zip(jobs, places, strict=True) if at == machine], room)
        best = max(best, speed)
    return best


def _best_on(jobs: Sequence[RunnableJob], room: MachineRoom) -> float:
    """Of all options of the jobs of one machine: only sums that nothing dominates are gone on with."""
    sums = {GpuAmounts(0, 0): 0.0}
    for job in jobs:
        longer: dict[GpuAmounts, float] = {}
        for held, speed in sums.items():
            for option, faster in enumerate(job.demand.speeds.tolist()):
                amounts = job.demand.amounts(option)
                total = GpuAmounts(
                    held.millicpus + job.gpus * amounts.millicpus, held.mebibytes + job.gpus * amounts.mebibytes
                )
                if total.millicpus <= room.millicpus and total.mebibytes <= room.mebibytes:
                    longer[total] = max(longer.get(total, 0.0), speed + faster)
        sums = longer
    return max(sums.values(), default=-1e9)


MODELS = (
    SENSITIVE,
    INSENSITIVE,
    SensitivityProfile((1.0, 3.0, 12.0), (62.5, 125.0), ((0.3, 0.3), (1.0, 1.0), (2.0, 3.0))),
    SensitivityProfile((3.0, 6.0), (62.5, 187.5), ((1.0, 1.2), (1.6, 2.5))),
)


def test_rounds_of_a_few_jobs_come_near_the_best_of_all() -> None:
    reached: list[float] = []
    for seed in range(60):
        generator = np.random.default_rng(seed)
        book, left, jobs = DemandBook(), 8, []
        while left:
            gpus = min(left, int(generator.choice([1, 2, 4], p=[0.2, 0.4, 0.4])))
            jobs.append(job_of(book, gpus, MODELS[int(generator.integers(len(MODELS)))], SMALL))
            left -= gpus
        found = Tune().allocate(jobs, [SMALL, SMALL])
        assert all(each is not None for each in found)
        if any(each is not None and len(each.parts) > 1 for each in found):
            continue
        share_of_best = total_speed(found) / best_of_all(jobs, [SMALL, SMALL])
        assert share_of_best <= 1.0 + 1e-9
        reached.append(share_of_best)
    assert len(reached) > 30
    assert min(reached) > 0.9
    assert float(np.mean(reached)) > 0.995
