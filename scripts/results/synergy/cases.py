"""What is run: one simulation a case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

ORDERS = ("fifo", "srtf", "las", "ftf")
PROPORTIONAL, GREEDY, TUNE, OPT = "synergy_proportional", "synergy_greedy", "synergy_tune", "synergy_opt"
DRF, TETRIS = "drf_packing", "tetris_packing"
MECHANISMS = (PROPORTIONAL, GREEDY, TUNE, OPT)
SINGLE_LOADS = (6.0, 7.0, 8.0, 9.0, 10.0)
MULTI_LOADS = (4.0, 5.0, 5.5, 6.0)
FULL_MULTI = 6.0
"""Jobs an hour at which the cluster is full with proportional shares."""
SPLITS = ("20-70-10", "30-60-10", "60-30-10", "50-0-50")
MIXED, SENSITIVE = SPLITS[0], SPLITS[-1]
SPLIT_LOADS = (4.0, 5.0, 5.5, 6.0)
STATIC_LOAD = 5.5
"""At which static demands of sensitive jobs are more than the machines have, and proportional shares are not."""
RATIOS = (3.0, 4.0, 5.0, 6.0)
LIST_SINGLE, LIST_MULTI, PHILLY = "list-single", "list-multi", "philly"
DERIVED_SINGLE, DERIVED_MULTI = "single", "multi"
PHILLY_ORDERS = ("srtf", "las", "fifo")
MULTI_ORDERS = ("fifo", "las", "srtf")
STATIC_ORDERS = ((DRF, "fifo"), (TETRIS, "fifo"), (TETRIS, "srtf"))
"""The orders with which static packings are compared, which they follow between equals."""
STATIC_SINGLE_LOADS = (6.0, 7.0)
"""At which they are compared with jobs of one GPU too."""


class Monitored(NamedTuple):
    """The jobs whose completion counts, by their place in the order of submission."""

    first: int
    behind: int


EARLY = Monitored(1000, 2000)
"""Of which a figure of the authors' simulator is known; and of Philly's jobs."""
STEADY = Monitored(3000, 4000)
"""When waits in an overloaded queue are as long as those of the paper."""
ROWS = 7000
"""So many jobs are submitted: more than come before the last of those that count has ended, but where orders let some starve."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run."""

    trace: str
    """One that is derived, an authors' list, or Philly's."""
    load: float
    """Jobs an hour; 0 where the trace says."""
    policy: str
    order: str = "fifo"
    split: str = MIXED
    cpus_per_gpu: float = 3.0


FULL = ((LIST_SINGLE, 0.0), (DERIVED_MULTI, FULL_MULTI))
"""The traces on which all orders and mechanisms are compared, and their loads."""


def all_cases() -> tuple[Case, ...]:
    """Every run of the document, once, the longest first."""
    wanted = [Case(trace, load, OPT, order) for order in ORDERS for trace, load in FULL]
    for policy in (TUNE, PROPORTIONAL):
        wanted += [Case(PHILLY, 0.0, policy, order) for order in PHILLY_ORDERS]
        wanted += [Case(trace, 0.0, policy) for trace in (LIST_SINGLE, LIST_MULTI)]
        wanted += [Case(DERIVED_MULTI, load, policy, order) for order in MULTI_ORDERS for load in MULTI_LOADS]
        wanted += [Case(DERIVED_SINGLE, load, policy) for load in SINGLE_LOADS]
        wanted += [Case(LIST_SINGLE, 0.0, policy, cpus_per_gpu=cpus) for cpus in RATIOS]
    for policy in (TUNE, PROPORTIONAL, GREEDY):
        wanted += [Case(trace, load, policy, order) for trace, load in FULL for order in ORDERS]
        wanted += [Case(DERIVED_MULTI, load, policy, split=split) for split in SPLITS for load in SPLIT_LOADS]
    for split in (MIXED, SENSITIVE):
        for packing, order in STATIC_ORDERS:
            wanted += [
                Case(DERIVED_MULTI, STATIC_LOAD, policy, order, split) for policy in (packing, TUNE, PROPORTIONAL)
            ]
    for load in STATIC_SINGLE_LOADS:
        wanted += [Case(DERIVED_SINGLE, load, policy, split=SENSITIVE) for policy in (DRF, TETRIS, TUNE, PROPORTIONAL)]
    return tuple(dict.fromkeys(wanted))
