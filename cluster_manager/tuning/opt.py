"""Synergy-OPT (§4.1): what the best allocation would be, by two programs solved with HiGHS.

Rule: the first program gives every job one of its options so that the speeds of all are greatest, as if all machines
were one; its bound is the greatest throughput that any allocation of these jobs reaches (Theorem 4.1). The second spreads
what it says over the machines, where a job may be split in any ratio; a vertex splits at most three jobs for each machine.
Parts of GPUs cannot be given out, so that jobs that are split are placed anew, by whole GPUs, and all get what is ideal
for them where it fits. For jobs that stay where they are one program is exact.

Invariant: as for Synergy-TUNE, to which it falls back where a solver finds nothing better in time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.tables import MEBIBYTES, MILLICPUS, Integers
from cluster_manager.tuning.demand import CPU, MEMORY, Demand, GpuAmounts
from cluster_manager.tuning.exchanges import MOST_SWEEPS, improve
from cluster_manager.tuning.mechanism import JobAllocation, MachineRoom, PlacedJob, RunnableJob, total_speed
from cluster_manager.tuning.places_kept import retuned_in_place
from cluster_manager.tuning.placing import grant, place_on, place_with_base
from cluster_manager.tuning.program import NotSolved, Program
from cluster_manager.tuning.round_arrays import (
    NOT_PLACED,
    RoundArrays,
    allocations_of,
    arrays_of,
    descending_demand,
    runnable,
)
from cluster_manager.tuning.tune import Tune

GAP = 1e-4
"""Answers this close to the bound, as a fraction, are the best."""
WHOLE = 1.0 - 1e-6
"""More of a job than this on one machine is all of it."""


class Ideal(NamedTuple):
    """What the first program says."""

    options: tuple[int, ...]
    """Of each job; NOT_PLACED for those that do not run."""
    speed: float
    """Of all together."""
    bound: float
    """No allocation of these jobs is faster."""


@dataclass(frozen=True, slots=True)
class Opt:
    """See the module. The limit is for each program, on the clock of the machine: with a limit that is reached the answer
    depends on how fast the machine is."""

    name: str = "opt"
    reverts_others: bool = True
    time_limit_s: float = 10.0

    def ideal(self, jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom]) -> Ideal:
        """The first program (Expressions 1–5), for the jobs whose GPUs are there, equal jobs counted together.

        Raises NotSolved when not even the bases of all have room, or the solver found nothing in time.
        """
        running = runnable(jobs, machines)
        kinds: dict[tuple[int, int], list[int]] = {}
        for index in running:
            kinds.setdefault((id(jobs[index].demand), jobs[index].gpus), []).append(index)
        rows = [(-math.inf, float(sum(machine[resource] for machine in machines))) for resource in (1, 2)]
        program = Program([*rows, *((float(len(members)), float(len(members))) for members in kinds.values())])
        for number, members in enumerate(kinds.values()):
            gpus, demand, _ = jobs[members[0]]
            for option in range(len(demand.speeds)):
                cpus, memory = gpus * demand.amounts(option).millicpus, gpus * demand.amounts(option).mebibytes
                entries = [(CPU, float(cpus)), (MEMORY, float(memory)), (2 + number, 1.0)]
                program.add_column(float(demand.speeds[option]), float(len(members)), entries, whole=True)
        solution = program.solve(self.time_limit_s, GAP)
        options = [NOT_PLACED] * len(jobs)
        column = 0
        for members in kinds.values():
            waiting = iter(members)
            for option in range(len(jobs[members[0]].demand.speeds)):
                for _ in range(round(solution.values[column])):
                    options[next(waiting)] = option
                column += 1
        return Ideal(tuple(options), solution.objective, solution.bound)

    def spread(
        self, jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom], ideal: Ideal
    ) -> tuple[dict[int, float], ...]:
        """The second program (§4.1.2): for each job which part of it is on which machine; empty for those that do not run.

        The first machines are cheaper, so that a vertex fills one after the other. Raises NotSolved as `ideal` does.
        """
        running = [index for index, option in enumerate(ideal.options) if option != NOT_PLACED]
        rows = [(-math.inf, float(amount)) for machine in machines for amount in machine]
        program = Program([*rows, *((1.0, 1.0) for _ in running)])
        for number, index in enumerate(running):
            amounts = jobs[index].demand.amounts(ideal.options[index])
            asked = [jobs[index].gpus * each for each in (1, *amounts)]
            for machine in range(len(machines)):
                entries = [(3 * machine + resource, float(each)) for resource, each in enumerate(asked)]
                entries.append((3 * len(machines) + number, 1.0))
                program.add_column(-float(machine * jobs[index].gpus), 1.0, entries, whole=False)
        values = iter(program.solve(self.time_limit_s).values)
        parts: list[dict[int, float]] = [{} for _ in jobs]
        for index in running:
            for machine in range(len(machines)):
                part = next(values)
                if part > 1.0 - WHOLE:
                    parts[index][machine] = part
        return tuple(parts)

    def allocate(self, jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom]) -> list[JobAllocation | None]:
        tuned = Tune().allocate(jobs, machines)
        try:
            ideal = self.ideal(jobs, machines)
            parts = self.spread(jobs, machines, ideal)
        except NotSolved:
            return tuned
        arrays = arrays_of(jobs, machines)
        order = descending_demand(arrays, [index for index, found in enumerate(parts) if found])
        split = [index for index in order.tolist() if max(parts[index].values()) < WHOLE]
        for index in order.tolist():
            if max(parts[index].values()) >= WHOLE:
                place_on(arrays, index, max(parts[index], key=parts[index].__getitem__), 0)
        place_with_base(arrays, np.array(split, np.int64))
        grant(arrays, order, np.array(ideal.options, np.int64))
        improve(arrays, order, MOST_SWEEPS)
        realised = allocations_of(arrays, jobs)
        runs = [allocation is not None for allocation in realised]
        same = runs == [allocation is not None for allocation in tuned]
        return realised if same and total_speed(realised) > total_speed(tuned) else tuned

    def retuned(self, jobs: Sequence[PlacedJob], machines: Sequence[MachineRoom]) -> list[GpuAmounts]:
        return retuned_in_place(jobs, machines, self._share_out)

    def asks(self, demand: Demand) -> tuple[GpuAmounts, ...]:
        return Tune().asks(demand)

    def _share_out(self, arrays: RoundArrays, order: Integers) -> None:
        """The best options on the machines that the jobs have: exact, but for the limit of time."""
        jobs = order.tolist()
        free = arrays.free.copy()
        Tune().share_out(arrays, order)
        tuned = arrays.level.copy()
        rows = [(-math.inf, float(room)) for machine in free.tolist() for room in machine[MILLICPUS : MEBIBYTES + 1]]
        program = Program([*rows, *((1.0, 1.0) for _ in jobs)])
        for number, job in enumerate(jobs):
            first = int(arrays.first[job])
            for row in range(first, first + int(arrays.option_count[job])):
                more = arrays.options[row] - arrays.options[first]
                entries = [(2 * len(free) + number, 1.0)]
                for part in range(int(arrays.parts[job])):
                    machine, gpus = int(arrays.part_machine[job, part]), int(arrays.part_gpus[job, part])
                    entries += [(2 * machine + resource, float(gpus * more[resource])) for resource in (CPU, MEMORY)]
                program.add_column(float(arrays.speeds[row]), 1.0, entries, whole=True)
        try:
            values = program.solve(self.time_limit_s, GAP).values
        except NotSolved:
            return
        column, better = 0, 0.0
        for job in jobs:
            count = int(arrays.option_count[job])
            parts = values[column : column + count]
            chosen = parts.index(max(parts))
            better += float(arrays.speeds[arrays.first[job] + chosen] - arrays.speeds[arrays.first[job] + tuned[job]])
            arrays.level[job] = chosen
            column += count
        if better <= 0.0:
            arrays.level[:] = tuned
