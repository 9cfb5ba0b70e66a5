"""Lyra §4 and §5, example by example: what machines cost that go back, how elastic jobs share, and what is packed."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from cluster_manager.elastic.allocation import MostReduction
from cluster_manager.elastic.demand import ElasticDemand
from domain.identifiers import AttemptNumber, MachineId, WorkloadId
from domain.placement import AttemptKey
from regional_scheduler.reclaiming.fewest_evictions import FewestEvictions
from regional_scheduler.reclaiming.fewest_workloads import FewestWorkloadsFirst
from regional_scheduler.reclaiming.least_preemption_cost import LeastPreemptionCost, preemption_cost
from regional_scheduler.reclaiming.optimal import OptimalEvictions
from regional_scheduler.reclaiming.policy import AttemptOnMachine, MachineOnLoan, ReclaimingPolicy

# §4, Figure 5 and Table 1.

FIGURE_5 = ({"a": 4}, {"a": 4}, {"b": 8}, {"c": 4}, {"c": 1, "d": 1}, {"d": 4})
"""GPUs of each job on servers 1 to 6: "server 4's cost would be 0.8 as it hosts 80% of job c's GPUs, and server 5's cost is
0.4 (0.2+0.2)"."""


def servers(gpus: tuple[dict[str, int], ...] = FIGURE_5) -> list[MachineOnLoan]:
    in_all = {name: sum(here.get(name, 0) for here in gpus) for here in gpus for name in here}
    spread = {name: sum(name in here for here in gpus) for name in in_all}
    return [
        MachineOnLoan(
            MachineId(str(number)),
            tuple(
                AttemptOnMachine(
                    AttemptKey(WorkloadId(name), AttemptNumber(1)),
                    count,
                    spread[name],
                    gpus_elsewhere=in_all[name] - count,
                )
                for name, count in here.items()
            ),
        )
        for number, here in enumerate(gpus, 1)
    ]


def returned(policy: ReclaimingPolicy, on_loan: list[MachineOnLoan], count: int) -> tuple[set[str], int]:
    """The servers that go back, and how many jobs are preempted for it."""
    reclaim = policy.choose(on_loan, count, np.random.default_rng(0)).reclaim
    return set(reclaim.machines), len(reclaim.victims)


def test_table_1() -> None:
    assert [len(server.attempts) for server in servers()] == [1, 1, 1, 1, 2, 1]
    shares_of_gpus = [
        sum(Fraction(attempt.gpus, attempt.gpus + attempt.gpus_elsewhere) for attempt in server.attempts)
        for server in servers()
    ]
    assert [float(share) for share in shares_of_gpus] == [0.5, 0.5, 1, 0.8, 0.4, 0.8]
    assert [preemption_cost(server.attempts) for server in servers()] == [0.5, 0.5, 1, 0.5, 1, 0.5]


@pytest.mark.parametrize("policy", [LeastPreemptionCost(), FewestEvictions(), OptimalEvictions()], ids=str)
def test_which_two_servers(policy: ReclaimingPolicy) -> None:
    """ "Servers 1 and 2 are obviously the optimal choice with one preemption.\""""
    assert returned(policy, servers(), 2) == ({"1", "2"}, 1)
    assert returned(policy, servers()[::-1], 2) == ({"1", "2"}, 1)


def test_the_smallest_job_count_may_choose_any_two_servers_of_one_job() -> None:
    """ "The corresponding knapsack problem would select any two 1-cost servers such as 3 and 4 which lead to more
    preemptions.\""""
    assert returned(FewestWorkloadsFirst(), servers()[2:], 2)[1] == 2


def test_reclaiming_a_server_makes_others_cheaper() -> None:
    """ "Reclaiming server 1 for instance results in an idle server 2 whose cost becomes 0 instead of 1.\""""
    without_a = servers(({"a": 4}, {}, {"b": 8}))
    assert returned(LeastPreemptionCost(), without_a, 1) == ({"2"}, 0)
    assert returned(LeastPreemptionCost(), servers(), 1)[1] == 1
    # c and d are on three servers: two evictions vacate them all, and with a one more vacates five.
    assert returned(LeastPreemptionCost(), servers(), 5) == ({"1", "2", "4", "5", "6"}, 3)


# §5.1, Tables 2 to 4, and §5.2, Figure 6.


class Job(NamedTuple):
    """w_min, w_max, and the running time with w_max workers."""

    base: int
    most: int
    shortest_s: float

    @property
    def remaining_s(self) -> float:
        """With w_min workers."""
        return self.shortest_s * self.most / self.base

    def demand(self, name: str, gpus_per_worker: int = 1) -> ElasticDemand:
        key = AttemptKey(WorkloadId(name), AttemptNumber(1))
        return ElasticDemand(key, gpus_per_worker, self.base, self.most, self.base, self.remaining_s)


TABLE_2 = {"A": Job(2, 6, 50.0), "B": Job(2, 6, 20.0)}
TABLE_4 = {"A": Job(2, 3, 100.0), "B": Job(2, 6, 20.0)}


def average_jct_s(jobs: dict[str, Job], initial: dict[str, int]) -> float:
    """Of jobs that begin with these workers: "once the first job finishes, the other is immediately allocated more
    resources as much as possible"."""
    first = min(jobs, key=lambda name: jobs[name].remaining_s / jobs[name].demand(name).rate(initial[name]))
    (other,) = jobs.keys() - {first}
    first_s = jobs[first].remaining_s / jobs[first].demand(first).rate(initial[first])
    left_s = jobs[other].remaining_s - first_s * jobs[other].demand(other).rate(initial[other])
    return (first_s + first_s + left_s / jobs[other].demand(other).rate(jobs[other].most)) / 2


def test_tables_2_and_3() -> None:
    """ "All three strategies lead to different JCTs and the difference between the worst and best is 24%.\""""
    averages = [average_jct_s(TABLE_2, {"A": a, "B": b}) for a, b in ((6, 2), (2, 6), (4, 4))]
    assert averages == pytest.approx([51.67, 41.67, 45.0], abs=0.005)


def test_table_4() -> None:
    """ "Shortest job first" favours B; "if we satisfy B first, the average JCT (63.33) is actually worse than satisfying
    A's demand first (62)"."""
    assert average_jct_s(TABLE_4, {"A": 3, "B": 5}) == pytest.approx(62.0)
    assert average_jct_s(TABLE_4, {"A": 2, "B": 6}) == pytest.approx(63.33, abs=0.005)


def test_the_knapsack_favours_a_in_table_4() -> None:
    """Of eight workers four are base demand. "Job A's running time contributes to a 6.67-second JCT reduction while job B's
    only increases by 4 seconds.\""""
    tasks = MostReduction()([job.demand(name) for name, job in TABLE_4.items()], 4)
    assert {str(key.workload): count for key, count in tasks.items()} == {"A": 3, "B": 5}


def test_figure_6() -> None:
    """ "We assume job A needs 2 GPU per worker and job B 1 GPU per worker.\""""
    a, b = TABLE_4["A"].demand("A", 2), TABLE_4["B"].demand("B")
    assert [tuple(item) for item in a.items()[1:]] == [(2, 50.0)]
    assert [item.weight for item in b.items()[1:]] == [1, 2, 3, 4]
    assert [item.value for item in b.items()[1:]] == pytest.approx([20.0, 30.0, 36.0, 40.0])
    for gpus, packed, value in (
        (1, (2, 3), 20.0),
        (2, (3, 2), 50.0),
        (4, (3, 4), 80.0),
        (5, (3, 5), 86.0),
        (6, (3, 6), 90.0),
    ):
        tasks = MostReduction()([a, b], gpus)
        assert (tasks[a.key], tasks[b.key]) == packed
        assert a.reduction_s(tasks[a.key]) + b.reduction_s(tasks[b.key]) == pytest.approx(value)


def test_the_knapsack_looks_no_further_than_its_items() -> None:
    """In Table 2 it comes between solutions 1 and 3: what the end of one job is worth to the other is in no item."""
    tasks = MostReduction()([job.demand(name) for name, job in TABLE_2.items()], 4)
    chosen = {str(key.workload): count for key, count in tasks.items()}
    assert chosen == {"A": 5, "B": 3}
    assert average_jct_s(TABLE_2, chosen) == pytest.approx(48.33, abs=0.005)
