"""The fewest evictions that are possible, by integer programming (HiGHS): what other reclaiming policies are measured by.

Rule: minimise the attempts that are evicted, where a machine goes back only if all its attempts are, and `count` machines
do. Which of several optimal answers it is, is the solver's to say. It takes a tenth of a second for hundreds of machines in
common states, and has no limit of time: a reference, not for the service.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import highspy
import numpy as np

from regional_scheduler.reclaiming.fewest_evictions import hosted_attempts, vacated_by
from regional_scheduler.reclaiming.policy import MachineOnLoan, ReclaimChoice


class NotSolved(Exception):
    """The solver gave up."""


@dataclass(frozen=True, slots=True)
class OptimalEvictions:
    """Needs no randomness."""

    name: str = "optimal"

    def choose(self, on_loan: Sequence[MachineOnLoan], count: int, rng: np.random.Generator) -> ReclaimChoice:
        keys, hosted = hosted_attempts(on_loan)
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("mip_rel_gap", 0.0)
        for _ in keys:
            solver.addVar(0.0, 1.0)
        for place in range(len(on_loan)):
            solver.addVar(0.0, 1.0)
            solver.changeColIntegrality(len(keys) + place, highspy.HighsVarType.kInteger)
        for number in range(len(keys)):
            solver.changeColCost(number, 1.0)
        both = np.array([1.0, -1.0])
        for place in range(len(on_loan)):
            first, end = hosted.first_attempt[place : place + 2].tolist()
            for attempt in hosted.attempts[first:end].tolist():
                # The machine goes back only if the attempt is evicted.
                solver.addRow(-highspy.kHighsInf, 0.0, 2, np.array([len(keys) + place, attempt], np.int32), both)
        machines = np.arange(len(keys), len(keys) + len(on_loan), dtype=np.int32)
        solver.addRow(float(count), highspy.kHighsInf, len(machines), machines, np.ones(len(machines)))
        solver.run()
        status = solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise NotSolved(f"the fewest evictions for {count} of {len(on_loan)} machines: {status}")
        leaves = np.array(solver.getSolution().col_value[: len(keys)])
        return vacated_by({key for key, one in zip(keys, leaves.tolist(), strict=True) if one > 0.5}, on_loan, count)
