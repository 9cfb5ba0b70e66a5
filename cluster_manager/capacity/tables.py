"""The tables in which one cluster's machines stand, which every kernel works on.

Tables have a row per thing and named columns. They are few and wide because every array costs each kernel call a
fifth of a microsecond, and because what is read together then lies together in memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

# The first columns of most tables: an amount of each resource.
GPUS = 0
MILLICPUS = 1
MEBIBYTES = 2
RESOURCES = 3
RESOURCE_NAMES = ("GPUs", "thousandths of a CPU", "MiB of memory")

# More columns of `state`.
WORKS_AS = 3
"""The machine's shape while it takes work, else NO_WORK."""
NO_WORK = -1

# Columns of `fixed`.
SHAPE = 0
RACK = 1
FIRST_GPU = 2

# Columns of `racks`, which has one row more, for where the last rack ends.
FIRST_MACHINE = 0
RACK_SHAPE = 1
MIXED = -1
"""In place of a shape: the machines of the rack have different ones."""

# More columns of `rack_free`: the most that any one machine of the rack has free, per resource; and a count.
GREATEST = 3
UNTOUCHED = 6

# More columns of `totals`: the sum of the capacities, per resource.
IN_SERVICE = 3
TOTAL_COLUMNS = 6

# Columns of `holders`.
ALL_HOLDERS = 0
LEAVING_HOLDERS = 1


class ClusterArrays(NamedTuple):
    """The first argument of every kernel. Summaries are over machines that take work; what is negative counts as 0."""

    shapes: Integers  # [shape, resource] the distinct shapes of machines; a fleet has few
    state: Integers  # [machine, amounts | WORKS_AS] capacity less all charges; negative while victims have yet to leave
    fixed: Integers  # [machine, SHAPE | RACK | FIRST_GPU] FIRST_GPU is a row of `holders`
    leaving: Integers  # [machine, amounts] the part of the charges that belongs to attempts being evicted
    free_gpus: Integers  # [machine] bit i: no attempt holds GPU i
    holders: Integers  # [gpu, ALL_HOLDERS | LEAVING_HOLDERS] how many attempts hold it: two while a victim has to leave
    racks: Integers  # [rack + 1, FIRST_MACHINE | RACK_SHAPE]
    rack_free: Integers  # [rack, amounts | GREATEST, GREATEST + 1, ... | UNTOUCHED] what is free; untouched machines
    totals: Integers  # [amounts | IN_SERVICE, IN_SERVICE + 1, ...] what is free in the cluster; what there is
    largest_rack: int


def summarise_racks(state: Integers, fixed: Integers, shapes: Integers, racks: int) -> Integers:
    """The table `rack_free`, computed anew from the machines."""
    works = state[:, WORKS_AS] != NO_WORK
    free = np.where(works[:, None], np.maximum(state[:, :RESOURCES], 0), 0)
    untouched = works & np.all(state[:, :RESOURCES] == shapes[fixed[:, SHAPE]], axis=1)
    summary = np.zeros((racks, UNTOUCHED + 1), np.int64)
    np.add.at(summary[:, :RESOURCES], fixed[:, RACK], free)
    np.maximum.at(summary[:, GREATEST:UNTOUCHED], fixed[:, RACK], free)
    np.add.at(summary[:, UNTOUCHED], fixed[:, RACK], untouched.astype(np.int64))
    return summary


def summarise_totals(state: Integers, fixed: Integers, shapes: Integers) -> Integers:
    """The table `totals`, computed anew from the machines."""
    works = (state[:, WORKS_AS] != NO_WORK)[:, None]
    totals = np.zeros(TOTAL_COLUMNS, np.int64)
    totals[:IN_SERVICE] = np.where(works, np.maximum(state[:, :RESOURCES], 0), 0).sum(axis=0)
    totals[IN_SERVICE:] = np.where(works, shapes[fixed[:, SHAPE]], 0).sum(axis=0)
    return totals
