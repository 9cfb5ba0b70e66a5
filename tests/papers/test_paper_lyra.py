"""Lyra §4 and §5, example by example: what machines cost that go back, how elastic jobs share, and what is packed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

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
    assert [float(preemption_cost(server.attempts)) for server in servers()] == [0.5, 0.5, 1, 0.5, 1, 0.5]


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
