"""Conservative backfilling, with an oracle (Mu'alem and Feitelson, IEEE TPDS 2001, §2.1).

Rule: every waiting workload, first in first out, gets a reservation at the earliest time at which so many GPUs of a
region will be free for as long as it runs, given what runs and the reservations before its own. What is due now starts.
Invariant: no workload is delayed beyond its reservation by a later one: a later one only ever gets what earlier
ones leave. With exact run times, and without failures, a reservation never gets worse once it is made.
Ignores: priorities, quotas; which GPUs of a region are free: reservations count GPUs, so a workload that finds enough of them in
the wrong places (on too many machines, in two clusters, of another model) keeps its claim on them and waits; CPUs and
memory; workloads without GPUs start whenever there is room. Only the first `most_reservations` of the queue have
reservations; those behind them do not start.

The reservations are made anew at each decision. What ended as expected, and what came to the end of the queue, leaves
them as they were; what ended otherwise (a machine was lost) lets all move up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from global_scheduler.ordering.fifo import FifoOrdering
from simulator.baselines.free_gpus import FreeGpus
from simulator.policies.allocation import QueuePass
from simulator.policies.policy import Policy
from simulator.policies.work import Work


@dataclass(frozen=True, slots=True)
class ReservationsForAll:
    """In queue order, each gets the earliest hole."""

    most_reservations: int = 1000
    name: str = "reservations_for_all"

    def allocate(self, queue_pass: QueuePass) -> None:
        heads = queue_pass.heads()
        if not heads:
            return
        fewest_gpus = min(work.gpus for work in heads)
        regions = sorted({region for work in heads for region in work.eligible})
        if max(queue_pass.idle_gpus(region) for region in regions) < fewest_gpus:
            return
        free = {region: _free_gpus(queue_pass, region) for region in regions}
        for _ in range(self.most_reservations):
            # Where nothing is left for now, further reservations are all for later.
            if max(staircase.at_once for staircase in free.values()) < fewest_gpus:
                return
            work = queue_pass.next()
            if work is None:
                return
            if work.gpus == 0:
                queue_pass.start(work)
                continue
            _reserve(queue_pass, work, free)


def _reserve(queue_pass: QueuePass, work: Work, free: dict[int, FreeGpus]) -> None:
    """Claims the earliest hole, and starts the workload if that is now."""
    run_time_s = queue_pass.run_time_s(work)
    start_s, region = min((free[region].first_fit_s(work.gpus, run_time_s), region) for region in work.eligible)
    if math.isinf(start_s):
        # Too many machines are down for it.
        return
    free[region].claim(start_s, run_time_s, work.gpus)
    if start_s <= queue_pass.now:
        queue_pass.start_in(work, region)


def _free_gpus(queue_pass: QueuePass, region: int) -> FreeGpus:
    ends = [(end.end_s, end.gpus) for end in queue_pass.expected_ends(region)]
    return FreeGpus(queue_pass.now, queue_pass.idle_gpus(region), ends)


CONSERVATIVE_BACKFILL = Policy(
    name="conservative_backfill",
    summary="first in, first out, with backfilling that delays no reservation; oracle (Mu'alem and Feitelson 2001)",
    ordering=FifoOrdering(),
    allocation=ReservationsForAll(),
)
