"""What all ways to share out CPUs and memory keep, and in what they differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from cluster_manager.tuning.demand import SLOWER, DemandBook, GpuAmounts
from cluster_manager.tuning.drf_packing import DrfPacking, dominant_share
from cluster_manager.tuning.greedy import Greedy
from cluster_manager.tuning.mechanism import (
    MachineRoom,
    Part,
    PlacedJob,
    RunnableJob,
    TuningMechanism,
    total_speed,
)
from cluster_manager.tuning.proportional import Proportional
from cluster_manager.tuning.tetris_packing import TetrisPacking
from cluster_manager.tuning.tune import Tune
from domain.sensitivity import SensitivityProfile
from tests.cluster_manager.tuning.plain_tune import plain_tune
from tests.cluster_manager.tuning.worlds import MACHINE, SHARE, check_round, job_of, placed, rounds

PAPER = Tune(exact_paper=True)
ALL: tuple[TuningMechanism, ...] = (Proportional(), Greedy(), Tune(), PAPER, DrfPacking(), TetrisPacking())
Round = tuple[list[RunnableJob], list[MachineRoom]]


@given(rounds())
def test_never_more_than_the_machines_have(given_round: Round) -> None:
    jobs, machines = given_round
    for mechanism in ALL:
        found = mechanism.allocate(jobs, machines)
        check_round(jobs, machines, found)
        assert mechanism.allocate(jobs, machines) == found


@given(rounds())
def test_never_slower_than_with_the_proportional_share(given_round: Round) -> None:
    """I7: of every job, and so of all together (Theorem 4.1, TUNE ≥ proportional)."""
    jobs, machines = given_round
    proportional = Proportional().allocate(jobs, machines)
    for tune in (Tune(), PAPER):
        found = tune.allocate(jobs, machines)
        assert all(allocation.speed >= SLOWER for allocation in found if allocation is not None)
        assert total_speed(found) >= total_speed(proportional) * SLOWER
    assert total_speed(Tune().allocate(jobs, machines)) >= total_speed(PAPER.allocate(jobs, machines)) * SLOWER


@given(rounds())
def test_never_an_idle_gpu_where_proportional_packing_would_use_it(given_round: Round) -> None:
    jobs, machines = given_round
    runs = [allocation is not None for allocation in Proportional().allocate(jobs, machines)]
    assert [allocation is not None for allocation in Tune().allocate(jobs, machines)] == runs
    left = sum(machine.gpus for machine in machines) - sum(job.gpus for job, run in zip(jobs, runs, strict=True) if run)
    assert all(job.gpus > left for job, run in zip(jobs, runs, strict=True) if not run)


@given(rounds())
def test_the_kernel_says_what_plain_python_says(given_round: Round) -> None:
    jobs, machines = given_round
    assert PAPER.allocate(jobs, machines) == plain_tune(jobs, machines)


@given(rounds())
def test_never_slower_or_over_committed_when_jobs_stay_where_they_are(given_round: Round) -> None:
    jobs, machines = given_round
    running = placed(jobs, Proportional().allocate(jobs, machines))
    for mechanism in ALL:
        left = [list(machine) for machine in machines]
        for job, amounts in zip(running, mechanism.retuned(running, machines), strict=True):
            for part in job.parts:
                for resource, each in enumerate((1, *amounts)):
                    left[part.machine][resource] -= part.gpus * each
            options = [job.demand.amounts(option) for option in range(len(job.demand.speeds))]
            assert amounts in (job.held, job.demand.share, *options)
        assert all(amount >= 0 for machine in left for amount in machine)


SENSITIVE = SensitivityProfile((1.0, 3.0, 12.0), (62.5,), ((0.3,), (1.0,), (3.0,)))
INSENSITIVE = SensitivityProfile((1.0,), (20.0,), ((1.0,),))
STEP = SensitivityProfile((3.0, 6.0), (62.5,), ((1.0,), (2.0,)))


def test_greedy_leaves_gpus_idle_when_cpus_run_out_and_tune_does_not() -> None:
    book = DemandBook()
    jobs = [job_of(book, 1, SENSITIVE) for _ in range(8)]
    greedy = Greedy().allocate(jobs, [MACHINE])
    assert [allocation is not None for allocation in greedy] == [True, True] + [False] * 6
    assert all(allocation is not None for allocation in Tune().allocate(jobs, [MACHINE]))


def test_greedy_skips_and_goes_on_in_the_order_of_the_policy() -> None:
    book = DemandBook()
    jobs = [
        job_of(book, 1, SENSITIVE),
        job_of(book, 1, SENSITIVE),
        job_of(book, 1, SENSITIVE),
        job_of(book, 1, INSENSITIVE),
    ]
    machine = MachineRoom(8, 25_000, 500 * 1024)
    found = Greedy().allocate(jobs, [machine])
    assert [allocation is not None for allocation in found] == [True, True, False, True]


def test_drf_takes_the_smallest_dominant_share_first() -> None:
    book = DemandBook()
    jobs = [job_of(book, 1, SENSITIVE), job_of(book, 1, SENSITIVE), job_of(book, 1, INSENSITIVE)]
    assert dominant_share(1, GpuAmounts(12_000, 64_000), MACHINE) == 0.5
    found = DrfPacking().allocate(jobs, [MachineRoom(8, 24_000, 500 * 1024)])
    assert [allocation is not None for allocation in found] == [True, False, True]


def test_tetris_takes_what_is_aligned_with_what_is_free() -> None:
    book = DemandBook()
    jobs = [job_of(book, 1, INSENSITIVE), job_of(book, 1, SENSITIVE)]
    found = TetrisPacking().allocate(jobs, [MachineRoom(8, 12_000, 500 * 1024)])
    assert [allocation is not None for allocation in found] == [False, True]
    shorter = [jobs[0]._replace(remaining_s=1.0), jobs[1]._replace(remaining_s=1e6)]
    found = TetrisPacking().allocate(shorter, [MachineRoom(8, 12_000, 500 * 1024)])
    assert [allocation is not None for allocation in found] == [True, False]


def test_tetris_splits_what_no_machine_holds() -> None:
    book = DemandBook()
    jobs = [job_of(book, 12, INSENSITIVE)]
    (found,) = TetrisPacking().allocate(jobs, [MACHINE, MACHINE])
    assert found is not None
    assert found.parts == (Part(0, 8), Part(1, 4))


def test_tune_chooses_the_machine_with_the_least_free_that_is_enough() -> None:
    book = DemandBook()
    machines = [
        MACHINE,
        MachineRoom(4, 24_000, 500 * 1024),
        MachineRoom(4, 16_000, 500 * 1024),
        MachineRoom(4, 8_000, 500 * 1024),
    ]
    (found,) = PAPER.allocate([job_of(book, 1, SENSITIVE)], machines)
    assert found is not None
    assert found.parts == (Part(2, 1),)


def test_tune_reverts_those_that_release_just_enough() -> None:
    """The first two take all CPUs; for the six others of the machine the first reverts, and that is enough for three."""
    book = DemandBook()
    jobs = [job_of(book, 1, SENSITIVE) for _ in range(5)]
    found = PAPER.allocate(jobs, [MACHINE])
    assert sorted(allocation.amounts.millicpus for allocation in found if allocation is not None) == [3_000] * 4 + [
        12_000
    ]


def test_multi_machine_jobs_hold_the_same_per_gpu_everywhere() -> None:
    book = DemandBook()
    jobs = [job_of(book, 12, STEP), job_of(book, 4, INSENSITIVE)]
    found = Tune().allocate(jobs, [MACHINE, MACHINE])
    assert found[0] is not None
    assert found[0].parts == (Part(0, 6), Part(1, 6))
    assert found[0].amounts == SHARE


def test_exchanges_give_to_whom_it_helps_most() -> None:
    """Six sensitive jobs and two that need one CPU each: 24 CPUs leave 4 above the shares."""
    book = DemandBook()
    jobs = [job_of(book, 1, SENSITIVE) for _ in range(6)] + [job_of(book, 1, INSENSITIVE) for _ in range(2)]
    found = Tune().allocate(jobs, [MACHINE])
    exact = PAPER.allocate(jobs, [MACHINE])
    assert total_speed(exact) == pytest.approx(8.0)
    assert total_speed(found) == pytest.approx(8.0 + 4.0 * 2.0 / 9.0)


def test_jobs_whose_machine_was_filled_by_others_keep_what_they_hold() -> None:
    book = DemandBook()
    demand = job_of(book, 1, SENSITIVE).demand
    running = [
        PlacedJob((Part(0, 1),), demand, GpuAmounts(2_000, 64_000)),
        PlacedJob((Part(1, 1),), demand, demand.share),
    ]
    machines = [MachineRoom(1, 2_000, 64_000), MACHINE]
    assert Tune().retuned(running, machines) == [GpuAmounts(2_000, 64_000), GpuAmounts(12_000, 64_000)]


def test_what_a_newcomer_asks_for() -> None:
    demand = job_of(DemandBook(), 1, SENSITIVE).demand
    best, share = GpuAmounts(12_000, 64_000), SHARE
    assert Proportional().asks(demand) == (share,)
    assert Greedy().asks(demand) == DrfPacking().asks(demand) == TetrisPacking().asks(demand) == (best,)
    assert Tune().asks(demand) == (best, share)
    assert [mechanism.reverts_others for mechanism in ALL] == [False, False, True, True, False, False]
    assert replace(PAPER, exact_paper=False) == Tune()


def test_nothing_to_do_is_nothing() -> None:
    for mechanism in ALL:
        assert list(mechanism.allocate([], [MACHINE])) == []
        assert list(mechanism.allocate([job_of(DemandBook(), 1, None)], [])) == [None]
        assert list(mechanism.retuned([], [MACHINE])) == []
