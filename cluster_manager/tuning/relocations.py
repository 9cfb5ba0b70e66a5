"""A local search that moves jobs between machines, so that what one machine has too much of helps the jobs of another.

Synergy-TUNE fills machines by GPUs (§4.2): a machine whose jobs gain nothing from CPUs may lie beside one whose jobs all do, and
few large jobs leave little choice later. Here a job changes places with nothing, one job or several jobs of another machine,
where the two machines together are faster then; as long as anything helps, or for a number of trials.

What jobs of two machines gain is estimated: the steps to faster options that gain most for what they cost come first. Jobs on
several machines stay where they are, with what they hold.

Invariant: the total speed never falls, who runs stays the same, and nobody holds less than its base (I7).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.tables import GPUS, MEBIBYTES, MILLICPUS, Integers, Reals
from cluster_manager.tuning.demand import CPU, MEMORY
from cluster_manager.tuning.exchanges import LEAST_GAIN
from cluster_manager.tuning.placing import NOWHERE
from cluster_manager.tuning.round_arrays import RoundArrays
from kernels.compiled import compiled, compiled_part

MOST_TRIALS = 18_000
"""Jobs whose options are tried, those of each machine at each exchange: within 10 ms with all else."""
MOST_EXCHANGED = 12
"""Jobs of a machine of which any subset may be exchanged; where there are more they stay."""
NO_ROOM = -1.0


class Side(NamedTuple):
    """One of two machines, for kernels: its jobs that may move, and what it would have after an exchange."""

    jobs: Integers  # [place] those that are on it alone
    room: Integers  # [GPUS | MILLICPUS | MEBIBYTES] for them
    after: Integers  # [place] the jobs after the exchange
    levels: Integers  # [place] and their options
    masks: Integers  # [mask] GPUs of each subset of the jobs


@compiled_part
def shared_out(
    arrays: RoundArrays, jobs: Integers, count: int, cpus: int, memory: int, prices: Reals, levels: Integers
) -> float:
    """The speed of so many jobs of the list with these amounts between them, all on one machine; NO_ROOM when not even their
    bases fit. Fills `levels` with what each holds then."""
    speed = 0.0
    for place in range(count):
        job = jobs[place]
        row = arrays.first[job]
        cpus -= arrays.gpus[job] * arrays.options[row, CPU]
        memory -= arrays.gpus[job] * arrays.options[row, MEMORY]
        levels[place] = 0
        speed += arrays.speeds[row]
    if cpus < 0 or memory < 0:
        return NO_ROOM
    while True:
        found, found_option, best_rate = NOWHERE, 0, 0.0
        for place in range(count):
            job = jobs[place]
            row, level, gpus = arrays.first[job], levels[place], arrays.gpus[job]
            for option in range(level + 1, arrays.option_count[job]):
                more_cpus = gpus * (arrays.options[row + option, CPU] - arrays.options[row + level, CPU])
                more_memory = gpus * (arrays.options[row + option, MEMORY] - arrays.options[row + level, MEMORY])
                if more_cpus > cpus or more_memory > memory:
                    continue
                gain = arrays.speeds[row + option] - arrays.speeds[row + level]
                rate = gain / max(1e-12, prices[CPU] * more_cpus + prices[MEMORY] * more_memory)
                if gain > LEAST_GAIN and rate > best_rate:
                    found, found_option, best_rate = place, option, rate
        if found == NOWHERE:
            return speed
        job = jobs[found]
        old, new = arrays.first[job] + levels[found], arrays.first[job] + found_option
        cpus -= arrays.gpus[job] * (arrays.options[new, CPU] - arrays.options[old, CPU])
        memory -= arrays.gpus[job] * (arrays.options[new, MEMORY] - arrays.options[old, MEMORY])
        speed += arrays.speeds[new] - arrays.speeds[old]
        levels[found] = found_option


@compiled_part
def movable(arrays: RoundArrays, machine: int, jobs: Integers, room: Integers) -> int:
    """Lists the jobs that are on this machine alone, and how many they are; `room` is what they and idle GPUs have."""
    count = 0
    for resource in range(3):
        room[resource] = arrays.free[machine, resource]
    for index in range(arrays.members[machine]):
        job = arrays.member[machine, index]
        if arrays.parts[job] != 1:
            continue
        jobs[count] = job
        count += 1
        row = arrays.first[job] + arrays.level[job]
        room[GPUS] += arrays.gpus[job]
        room[MILLICPUS] += arrays.gpus[job] * arrays.options[row, CPU]
        room[MEBIBYTES] += arrays.gpus[job] * arrays.options[row, MEMORY]
    return count


@compiled_part
def settle(arrays: RoundArrays, machine: int, side: Side, count: int) -> None:
    """Puts the jobs after an exchange on the machine, in place of those that were there alone."""
    kept = 0
    for index in range(arrays.members[machine]):
        job = arrays.member[machine, index]
        if arrays.parts[job] != 1:
            arrays.member[machine, kept] = job
            kept += 1
    for resource in range(3):
        arrays.free[machine, resource] = side.room[resource]
    for place in range(count):
        job = side.after[place]
        row = arrays.first[job] + side.levels[place]
        arrays.member[machine, kept + place] = job
        arrays.part_machine[job, 0] = machine
        arrays.level[job] = side.levels[place]
        arrays.free[machine, GPUS] -= arrays.gpus[job]
        arrays.free[machine, MILLICPUS] -= arrays.gpus[job] * arrays.options[row, CPU]
        arrays.free[machine, MEBIBYTES] -= arrays.gpus[job] * arrays.options[row, MEMORY]
    arrays.members[machine] = kept + count


@compiled_part
def exchanged(
    jobs: Integers, count: int, leaving: int, others: Integers, other_count: int, coming: int, after: Integers
) -> int:
    """Lists the jobs of a machine without those of one mask, and with those of the other machine's mask; how many."""
    total = 0
    for place in range(count):
        if not leaving >> place & 1:
            after[total] = jobs[place]
            total += 1
    for place in range(other_count):
        if coming >> place & 1:
            after[total] = others[place]
            total += 1
    return total


@compiled_part
def len_of(mask: int) -> int:
    """How many jobs it stands for."""
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


@compiled_part
def gpus_of_masks(arrays: RoundArrays, jobs: Integers, count: int, gpus: Integers) -> int:
    """GPUs of every subset of the jobs, by mask; how many masks there are."""
    masks = 1 << count
    gpus[0] = 0
    for mask in range(1, masks):
        lowest = 0
        while not mask >> lowest & 1:
            lowest += 1
        gpus[mask] = gpus[mask & (mask - 1)] + arrays.gpus[jobs[lowest]]
    return masks


@compiled_part
def is_first_of_its_kind(kinds: Integers, jobs: Integers, mask: int, count: int) -> bool:
    """Whether no other mask, which comes earlier, stands for jobs of the same kinds."""
    for place in range(count):
        if mask >> place & 1:
            for earlier in range(place):
                if not mask >> earlier & 1 and kinds[jobs[earlier]] == kinds[jobs[place]]:
                    return False
    return True


@compiled_part
def greatest_speed(arrays: RoundArrays, jobs: Integers, count: int) -> float:
    """How fast the jobs are with all that helps them."""
    speed = 0.0
    for place in range(count):
        speed += arrays.speeds[arrays.first[jobs[place]] + arrays.option_count[jobs[place]] - 1]
    return speed


@compiled_part
def wants_more(arrays: RoundArrays, jobs: Integers, count: int) -> bool:
    """Whether any of the jobs would be faster with more."""
    for place in range(count):
        job = jobs[place]
        if arrays.level[job] < arrays.option_count[job] - 1:
            return True
    return False


@compiled_part
def held_speed(arrays: RoundArrays, jobs: Integers, count: int) -> float:
    """How fast the jobs are with what they hold."""
    speed = 0.0
    for place in range(count):
        speed += arrays.speeds[arrays.first[jobs[place]] + arrays.level[jobs[place]]]
    return speed


@compiled_part
def trial(
    arrays: RoundArrays, one: Side, count: int, leaving: int, other: Side, other_count: int, coming: int, prices: Reals
) -> float:
    """How fast the first machine is when jobs leave it for jobs of the other; fills in what it has then."""
    there = exchanged(one.jobs, count, leaving, other.jobs, other_count, coming, one.after)
    return shared_out(arrays, one.after, there, one.room[MILLICPUS], one.room[MEBIBYTES], prices, one.levels)


@compiled_part
def is_worth_a_trial(
    one: Side, place: int, most: int, other: Side, other_count: int, mask: int, kinds: Integers
) -> bool:
    """Whether both machines have the GPUs for the exchange of a job for the jobs of a mask, and it is not the same as another
    one, or as none. `most` is the mask of all jobs of the first."""
    moved, coming = one.masks[1 << place], other.masks[mask]
    if one.masks[most] - moved + coming > one.room[GPUS]:
        return False
    if other.masks[(1 << other_count) - 1] - coming + moved > other.room[GPUS]:
        return False
    if not is_first_of_its_kind(kinds, other.jobs, mask, other_count):
        return False
    for alone in range(other_count):
        if mask == 1 << alone and kinds[other.jobs[alone]] == kinds[one.jobs[place]]:
            return False
    return True


@compiled_part
def best_exchange(
    arrays: RoundArrays,
    one: Side,
    count: int,
    other: Side,
    other_count: int,
    kinds: Integers,
    prices: Reals,
    left: Integers,
) -> tuple[int, int]:
    """Which job of the first machine goes to the other one for which of its jobs, as masks; nothing for nothing where that is
    no gain. Takes trials from `left`."""
    before = held_speed(arrays, one.jobs, count) + held_speed(arrays, other.jobs, other_count)
    greatest = greatest_speed(arrays, one.jobs, count) + greatest_speed(arrays, other.jobs, other_count)
    most = gpus_of_masks(arrays, one.jobs, count, one.masks) - 1
    subsets = gpus_of_masks(arrays, other.jobs, other_count, other.masks)
    best_gain, leaving, coming = LEAST_GAIN, 0, 0
    for place in range(count):
        if not is_first_of_its_kind(kinds, one.jobs, 1 << place, count):
            continue
        for mask in range(subsets):
            if not is_worth_a_trial(one, place, most, other, other_count, mask, kinds):
                continue
            if left[0] <= 0:
                return leaving, coming
            left[0] -= count
            speed = trial(arrays, one, count, 1 << place, other, other_count, mask, prices)
            # No more than this is possible, whatever the other machine has then.
            there = count - 1 + len_of(mask)
            possible = speed + greatest - greatest_speed(arrays, one.after, there)
            if speed == NO_ROOM or possible - before <= best_gain:
                continue
            other_speed = trial(arrays, other, other_count, mask, one, count, 1 << place, prices)
            if other_speed != NO_ROOM and speed + other_speed - before > best_gain:
                best_gain, leaving, coming = speed + other_speed - before, 1 << place, mask
    return leaving, coming


@compiled_part
def is_full_of(side: Side, count: int, kinds: Integers, kind: int, arrays: RoundArrays) -> bool:
    """Whether all jobs of a machine that may move are of one kind, and leave no GPU idle."""
    for place in range(count):
        if kinds[side.jobs[place]] != kind:
            return False
    full: bool = side.room[GPUS] == count * arrays.gpus[kind]
    return full


@compiled
def relocate(arrays: RoundArrays, prices: Reals, one: Side, other: Side, kinds: Integers, left: Integers) -> None:
    """Searches from where all jobs are, for so many trials as are left. `kinds` are those of `kinds_of`."""
    changed = True
    while changed and left[0] > 0:
        changed = False
        for machine in range(len(arrays.free)):
            for second in range(len(arrays.free)):
                if left[0] <= 0:
                    return
                count = movable(arrays, machine, one.jobs, one.room)
                # The first is the one that is short of something.
                if not wants_more(arrays, one.jobs, count) or count > MOST_EXCHANGED:
                    break
                other_count = movable(arrays, second, other.jobs, other.room)
                if machine == second or other_count > MOST_EXCHANGED:
                    continue
                if is_full_of(one, count, kinds, kinds[one.jobs[0]], arrays) and is_full_of(
                    other, other_count, kinds, kinds[one.jobs[0]], arrays
                ):
                    # One of a kind for another of it is all that would fit.
                    continue
                leaving, coming = best_exchange(arrays, one, count, other, other_count, kinds, prices, left)
                if leaving == 0:
                    continue
                changed = True
                trial(arrays, one, count, leaving, other, other_count, coming, prices)
                trial(arrays, other, other_count, coming, one, count, leaving, prices)
                settle(arrays, machine, one, count - 1 + len_of(coming))
                settle(arrays, second, other, other_count + 1 - len_of(coming))


def relocated(arrays: RoundArrays, prices: Reals, trials: int = MOST_TRIALS) -> None:
    """Searches from where all jobs are, for so many trials at most."""
    most = max(1, arrays.member.shape[1])
    sides = [_side(most) for _ in range(2)]
    relocate(arrays, prices, sides[0], sides[1], kinds_of(arrays), np.array([trials]))


def kinds_of(arrays: RoundArrays) -> Integers:
    """[job] the first that asks for as many GPUs and has the same options: to exchange the one is to exchange the other."""
    alike: dict[tuple[bytes, bytes], int] = {}
    of_row: dict[tuple[int, int], int] = {}
    known: dict[tuple[int, int], int] = {}
    kinds = []
    for job, (gpus, first, count) in enumerate(
        zip(arrays.gpus.tolist(), arrays.first.tolist(), arrays.option_count.tolist(), strict=True)
    ):
        options = of_row.get((first, count))
        if options is None:
            rows = slice(first, first + count)
            # Adding 0 makes one zero of both.
            content = (arrays.options[rows].tobytes(), (arrays.speeds[rows] + 0.0).tobytes())
            options = of_row[first, count] = alike.setdefault(content, len(alike))
        kinds.append(known.setdefault((gpus, options), job))
    return np.array(kinds, np.int64)


def _side(most: int) -> Side:
    """Room for so many jobs of a machine."""
    jobs, room, masks = (
        np.zeros(most, np.int64),
        np.zeros(3, np.int64),
        np.zeros(1 << min(most, MOST_EXCHANGED), np.int64),
    )
    return Side(jobs, room, np.zeros(2 * most, np.int64), np.zeros(2 * most, np.int64), masks)
