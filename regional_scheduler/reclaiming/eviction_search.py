"""The kernel behind `fewest_evictions`: which attempts leave so that so many machines are vacated.

It is the minimum k-union problem, which is NP-hard. A step evicts all that is left on one machine, and counts which
machines, there and elsewhere, are vacated by that. It takes the step with the fewest evictions for each machine, where a
machine that is vacated in part counts for a part of it: how much so is tried in several ways, and the best kept. In
the end those are spared without whom enough machines are vacated all the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cluster_manager.capacity.tables import Integers, Reals
from kernels.compiled import compiled, compiled_part

Flags = NDArray[np.bool_]

PARTIAL_WEIGHTS = (0.0, 0.1, 0.3, 0.6)
"""For what a machine counts that a step vacates in part, tried one after the other."""


class HostedAttempts(NamedTuple):
    """Which attempts are on which machines, both numbered; all arrays are of integers."""

    first_attempt: Integers
    """[machine] where its attempts begin in `attempts`, and one more for the end."""
    attempts: Integers
    first_machine: Integers
    """[attempt] where its machines begin in `machines`, and one more for the end."""
    machines: Integers
    gpus: Integers
    """[attempt] that it holds in all: of equally many evictions those are better that vacate less."""


class _Search(NamedTuple):
    """What one course of the search knows, and what it needs room for."""

    evicted: Flags
    """[attempt]"""
    remaining: Integers
    """[machine] attempts that are still on it."""
    hits: Integers
    """[machine] 0 between two steps."""
    touched: Integers
    step_gpus: Integers
    """[machine] that those hold who would be evicted by a step there; like the next two as it was found last."""
    step_vacates: Integers
    """[machine] how many machines it vacates."""
    step_vacates_in_part: Reals
    """[machine] what it does for others, as a sum of shares of the attempts that are still there."""
    outdated: Flags
    """[machine] whether the last three have to be found anew."""


@compiled_part
def _weigh_step(machine: int, hosted: HostedAttempts, search: _Search) -> None:
    """Finds out what it would do to evict all that is left on the machine."""
    touched = gpus = 0
    for entry in range(hosted.first_attempt[machine], hosted.first_attempt[machine + 1]):
        attempt = hosted.attempts[entry]
        if search.evicted[attempt]:
            continue
        gpus += hosted.gpus[attempt]
        for place in range(hosted.first_machine[attempt], hosted.first_machine[attempt + 1]):
            other = hosted.machines[place]
            if search.hits[other] == 0:
                search.touched[touched] = other
                touched += 1
            search.hits[other] += 1
    vacated = 0
    in_part = 0.0
    for index in range(touched):
        other = search.touched[index]
        if search.hits[other] == search.remaining[other]:
            vacated += 1
        else:
            in_part += search.hits[other] / search.remaining[other]
        search.hits[other] = 0
    search.step_gpus[machine] = gpus
    search.step_vacates[machine] = vacated
    search.step_vacates_in_part[machine] = in_part


@compiled_part
def _cheapest_step(wanted: int, partial_weight: float, hosted: HostedAttempts, search: _Search) -> int:
    """The machine to vacate next: fewest evictions for each machine that is wanted, then fewest GPUs, then the first."""
    best, least = -1, 0.0
    for machine in range(len(search.remaining)):
        if search.remaining[machine] == 0:
            continue
        if search.outdated[machine]:
            _weigh_step(machine, hosted, search)
            search.outdated[machine] = False
        useful = min(search.step_vacates[machine], wanted)
        in_part = min(search.step_vacates_in_part[machine], wanted - useful)
        cost = search.remaining[machine] / (useful + partial_weight * in_part)
        if best >= 0 and (cost > least or (cost == least and search.step_gpus[machine] >= search.step_gpus[best])):
            continue
        best, least = machine, cost
    return best


@compiled_part
def _vacate(machine: int, hosted: HostedAttempts, search: _Search) -> int:
    """Evicts all that is left on the machine; how many machines that vacates."""
    vacated = 0
    for entry in range(hosted.first_attempt[machine], hosted.first_attempt[machine + 1]):
        attempt = hosted.attempts[entry]
        if search.evicted[attempt]:
            continue
        search.evicted[attempt] = True
        for place in range(hosted.first_machine[attempt], hosted.first_machine[attempt + 1]):
            other = hosted.machines[place]
            search.remaining[other] -= 1
            vacated += search.remaining[other] == 0
    # Steps are other ones now wherever they share an attempt with a machine that has lost one.
    for entry in range(hosted.first_attempt[machine], hosted.first_attempt[machine + 1]):
        attempt = hosted.attempts[entry]
        for place in range(hosted.first_machine[attempt], hosted.first_machine[attempt + 1]):
            other = hosted.machines[place]
            for shared in range(hosted.first_attempt[other], hosted.first_attempt[other + 1]):
                neighbour = hosted.attempts[shared]
                if not search.evicted[neighbour]:
                    for there in range(hosted.first_machine[neighbour], hosted.first_machine[neighbour + 1]):
                        search.outdated[hosted.machines[there]] = True
    return vacated


@compiled_part
def _spare_needless(count: int, vacated: int, hosted: HostedAttempts, search: _Search) -> None:
    """Spares those without whom enough machines are vacated: first who blocks the fewest, then who holds the most GPUs."""
    while vacated > count:
        spared, fewest = -1, vacated - count + 1
        for attempt in range(len(search.evicted)):
            if not search.evicted[attempt]:
                continue
            blocked = 0
            for place in range(hosted.first_machine[attempt], hosted.first_machine[attempt + 1]):
                blocked += search.remaining[hosted.machines[place]] == 0
            same_but_larger = spared >= 0 and blocked == fewest and hosted.gpus[attempt] > hosted.gpus[spared]
            if blocked < fewest or same_but_larger:
                spared, fewest = attempt, blocked
        if spared < 0:
            return
        search.evicted[spared] = False
        vacated -= fewest
        for place in range(hosted.first_machine[spared], hosted.first_machine[spared + 1]):
            search.remaining[hosted.machines[place]] += 1


@compiled
def fewest_evictions(hosted: HostedAttempts, count: int) -> Flags:
    """[attempt] whether it is evicted, so that at least `count` machines are vacated. There must be as many machines."""
    machines, attempts = len(hosted.first_attempt) - 1, len(hosted.first_machine) - 1
    search = _Search(
        evicted=np.zeros(attempts, np.bool_),
        remaining=np.zeros(machines, np.int64),
        hits=np.zeros(machines, np.int64),
        touched=np.zeros(machines, np.int64),
        step_gpus=np.zeros(machines, np.int64),
        step_vacates=np.zeros(machines, np.int64),
        step_vacates_in_part=np.zeros(machines, np.float64),
        outdated=np.zeros(machines, np.bool_),
    )
    best = np.zeros(attempts, np.bool_)
    fewest, fewest_gpus = attempts + 1, 0
    for partial_weight in PARTIAL_WEIGHTS:
        search.evicted[:] = False
        search.outdated[:] = True
        vacated = 0
        for machine in range(machines):
            search.remaining[machine] = hosted.first_attempt[machine + 1] - hosted.first_attempt[machine]
            vacated += search.remaining[machine] == 0
        while vacated < count:
            machine = _cheapest_step(count - vacated, partial_weight, hosted, search)
            vacated += _vacate(machine, hosted, search)
        _spare_needless(count, vacated, hosted, search)
        evictions = gpus = 0
        for attempt in range(attempts):
            if search.evicted[attempt]:
                evictions += 1
                gpus += hosted.gpus[attempt]
        if evictions < fewest or (evictions == fewest and gpus < fewest_gpus):
            fewest, fewest_gpus = evictions, gpus
            best[:] = search.evicted
        if evictions == 0:
            break
    return best
