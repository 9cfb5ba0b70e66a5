"""Synergy-OPT against all that there is to try, on rounds that are small enough for it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings

from cluster_manager.tuning.demand import DemandBook
from cluster_manager.tuning.mechanism import MachineRoom, Part, PlacedJob, RunnableJob, total_speed
from cluster_manager.tuning.mechanisms import TUNING_MECHANISMS
from cluster_manager.tuning.opt import Opt
from cluster_manager.tuning.program import NotSolved, Program
from cluster_manager.tuning.proportional import Proportional
from cluster_manager.tuning.round_arrays import NOT_PLACED, runnable
from cluster_manager.tuning.tune import Tune
from domain.sensitivity import SensitivityProfile
from tests.cluster_manager.tuning.worlds import MACHINE, check_round, job_of, placed, rounds
from tests.examples import examples

Round = tuple[list[RunnableJob], list[MachineRoom]]
CLOSE = 1e-3
"""How far a program may stop before its bound, with some room."""
FEW = settings(max_examples=examples(40))


def greatest_speed(jobs: Sequence[PlacedJob], machines: Sequence[MachineRoom]) -> float:
    """The most that jobs reach on the machines that they have, by trying all options of all."""
    best = -math.inf
    for options in itertools.product(*(range(len(job.demand.speeds)) for job in jobs)):
        left = [list(machine) for machine in machines]
        for job, option in zip(jobs, options, strict=True):
            for part in job.parts:
                for resource, each in enumerate(job.demand.amounts(option), 1):
                    left[part.machine][resource] -= part.gpus * each
        if min(min(machine[1:]) for machine in left) >= 0:
            best = max(best, sum(float(job.demand.speeds[option]) for job, option in zip(jobs, options, strict=True)))
    return best


def speed_with(jobs: Sequence[PlacedJob], mechanism: Tune | Opt, machines: Sequence[MachineRoom]) -> float:
    """What a mechanism reaches on the machines that jobs have."""
    speeds = []
    for job, amounts in zip(jobs, mechanism.retuned(jobs, machines), strict=True):
        options = [job.demand.amounts(option) for option in range(len(job.demand.speeds))]
        speeds.append(float(job.demand.speeds[options.index(amounts)]))
    return sum(speeds)


@FEW
@given(rounds(most_machines=2, most_jobs=4))
def test_the_best_on_the_machines_that_jobs_have_is_found(given_round: Round) -> None:
    jobs, machines = given_round
    running = placed(jobs, Proportional().allocate(jobs, machines))
    if not running or math.prod(len(job.demand.speeds) for job in running) > 3_000:
        return
    best = greatest_speed(running, machines)
    found, tuned = speed_with(running, Opt(), machines), speed_with(running, Tune(), machines)
    assert found == pytest.approx(best, rel=CLOSE)
    assert len(running) * (1 - 1e-9) <= tuned <= best * (1 + 1e-9)


@FEW
@given(rounds(most_machines=2, most_jobs=4))
def test_the_first_program_is_the_best_on_one_machine_of_all(given_round: Round) -> None:
    jobs, machines = given_round
    running = runnable(jobs, machines)
    if math.prod(len(jobs[index].demand.speeds) for index in running) > 3_000 or not running:
        return
    whole = MachineRoom(*(sum(machine[resource] for machine in machines) for resource in range(3)))
    together = [
        PlacedJob((Part(0, jobs[index].gpus),), jobs[index].demand, jobs[index].demand.base) for index in running
    ]
    ideal = Opt().ideal(jobs, machines)
    assert ideal.speed == pytest.approx(greatest_speed(together, [whole]), rel=CLOSE)
    assert ideal.bound >= ideal.speed
    assert [option != NOT_PLACED for option in ideal.options] == [index in running for index in range(len(jobs))]


@FEW
@given(rounds())
def test_never_more_than_the_machines_have_nor_slower_than_tune(given_round: Round) -> None:
    jobs, machines = given_round
    found = Opt().allocate(jobs, machines)
    check_round(jobs, machines, found)
    assert total_speed(found) >= total_speed(Tune().allocate(jobs, machines))


@FEW
@given(rounds())
def test_the_second_program_spreads_all_and_splits_few(given_round: Round) -> None:
    """The total number of jobs that get fragmented is at most 3s (§4.1.2)."""
    jobs, machines = given_round
    try:
        ideal = Opt().ideal(jobs, machines)
    except NotSolved:
        return
    parts = Opt().spread(jobs, machines, ideal)
    assert sum(len(found) > 1 for found in parts) <= 3 * len(machines)
    used = [[0.0, 0.0, 0.0] for _ in machines]
    for job, option, found in zip(jobs, ideal.options, parts, strict=True):
        assert math.isclose(sum(found.values()), 0.0 if option == NOT_PLACED else 1.0, abs_tol=1e-5)
        for machine, part in found.items():
            for resource, each in enumerate((1, *job.demand.amounts(option))):
                used[machine][resource] += part * job.gpus * each
    for room, amounts in zip(machines, used, strict=True):
        assert all(amount <= has * (1 + 1e-5) + 1e-3 for amount, has in zip(amounts, room, strict=True))


def test_bases_that_do_not_fit_are_no_round_to_solve() -> None:
    book = DemandBook()
    jobs = [job_of(book, 1, None), job_of(book, 1, None)]
    scarce = [MachineRoom(2, 3_000, 128_000)]
    with pytest.raises(NotSolved):
        Opt().ideal(jobs, scarce)
    assert Opt().allocate(jobs, scarce) == Tune().allocate(jobs, scarce)


def test_when_the_time_is_up_the_answer_is_that_of_tune() -> None:
    book = DemandBook()
    sensitive = SensitivityProfile((1.0, 3.0, 12.0), (62.5,), ((0.3,), (1.0,), (3.0,)))
    jobs = [job_of(book, 1, sensitive) for _ in range(8)]
    hasty = Opt(time_limit_s=0.0)
    assert hasty.allocate(jobs, [MACHINE]) == Tune().allocate(jobs, [MACHINE])
    running = placed(jobs, Tune().allocate(jobs, [MACHINE]))
    assert hasty.retuned(running, [MACHINE]) == Tune().retuned(running, [MACHINE])


def test_a_program_without_an_answer_says_so() -> None:
    program = Program([(2.0, 3.0)])
    program.add_column(1.0, 1.0, [(0, 1.0)], whole=False)
    with pytest.raises(NotSolved, match="nfeasible"):
        program.solve(1.0)


def test_all_mechanisms_have_their_names() -> None:
    assert list(TUNING_MECHANISMS) == ["proportional", "greedy", "tune", "opt", "drf_packing", "tetris_packing"]
