"""Homes and copies decided together (MAST §6 names it as future work), by local search from the homes of hill climbing.

Copies made after the homes mend what the homes left: a job whose tables lie apart, or where its GPUs are not. But a home that
moves for a job's sake may cost more than a copy, and with a copy elsewhere a job need not weigh on its home region. Here
every training job chooses its region, every table its home, and a table is copied wherever a job that reads it runs.

Rule: job by job, in order of priority and GPU hours, to the region where Expression 2 and the bytes that it alone needs copied cost
least; then table by table to the home, among the regions that hold it, where Expressions 1 and 3 and the bytes copied cost
least; until a round gains a thousandth. A copied byte costs `copy_cost` over all bytes of the warehouse.

Invariant: no region stores more than it can, homes and copies together, unless it did at the start; training at home
does not fall below Expression 6's threshold; the cost of all this never grows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from data_placement.objective.placement_state import (
    READS,
    PlacementState,
    Scratch,
    apply_move,
    gpu_cell,
    price,
    scratch_of,
    state_of,
)
from data_placement.objective.problem import PlacementProblem
from data_placement.solvers.copying import CopyingBudget, allows, charge, copying_budget
from data_placement.solvers.hill_climbing import HillClimbing
from data_placement.solvers.moves import moves_between
from data_placement.solvers.plan import PlacementTask, Solution
from data_placement.solvers.saved_search import CannotResume
from data_placement.solvers.single_moves import LEAST_GAIN, LEAST_ROUND_GAIN
from domain.warehouse import Floats, Indices, Integers
from kernels.compiled import compiled, compiled_part

_MOST_ROUNDS = 20


class JointState(NamedTuple):
    """Where jobs run and what that takes, beside the homes."""

    job_region: Indices
    """(J,) of training jobs on GPUs; -1: in none, or another job"""
    running: Indices
    """(T, R) how many of the jobs that read a table run in a region: it is copied there unless it is at home or held anyway"""
    held: Integers
    """(T,) the copies that exist, whether a job needs them or not"""
    demand: Floats
    """(G, P, R) GPU hours by `job_region`"""
    extra: Floats
    """(G, P, R) zero between two evaluations"""
    cells: Floats
    """(G, R) what Expression 2 is made of"""
    free: Floats
    """(R,) bytes of storage beside homes and copies; negative where it was exceeded at the start"""
    copied: Floats
    """(1,) bytes of the copies"""
    nowhere: Floats
    """(1,) what Expression 1 counts for jobs that run in no region"""


@dataclass(frozen=True, slots=True)
class Joint:
    """Homes and copies together. `copy_cost`: what copying every byte of the warehouse once would cost."""

    copy_cost: float = 0.1

    def solve(self, task: PlacementTask) -> Solution:
        """Homes, the copies that jobs need, and where they run. Raises CannotResume for any saved search."""
        if task.resume is not None:
            raise CannotResume("the joint search saves nothing to go on from; start anew")
        problem = task.problem
        climbed = HillClimbing().solve(replace(task, resume=None))
        # Training is priced where it runs, not where its tables are at home; storage by homes and copies together.
        homes_alone = problem._replace(
            read_cost=np.where(problem.training, 0.0, problem.read_cost),
            priority_cost=np.zeros_like(problem.priority_cost),
            storage_limited=False,
        )
        state = state_of(homes_alone, climbed.home)
        budget = copying_budget(problem, task.start, task.limits)
        for table in np.flatnonzero(climbed.home != task.start.home).tolist():
            _charge(problem, budget, table, int(task.start.home[table]), int(climbed.home[table]))
        joint = joint_state_of(problem, state, task.start.replicas)
        finished = climbed.finished and self._descend(task, homes_alone, state, joint, budget)
        final = state_of(problem, state.home)
        return Solution(
            state.home,
            moves_between(problem, task.start, final),
            finished=finished,
            copies=_copies(joint, state.home),
            job_region=joint.job_region,
        )

    def _descend(
        self,
        task: PlacementTask,
        homes_alone: PlacementProblem,
        state: PlacementState,
        joint: JointState,
        budget: CopyingBudget,
    ) -> bool:
        problem = task.problem
        byte_cost = self.copy_cost / problem.stored_total
        scratch = scratch_of(problem)
        jobs = np.flatnonzero(problem.training & (problem.gpu_model >= 0))
        jobs = jobs[np.lexsort((jobs, -problem.gpu_hours[jobs], problem.priority[jobs]))]
        for number in range(1, _MOST_ROUNDS + 1):
            before = self.cost(problem, state, joint)
            if not task.progress(f"round {number}: choosing regions for jobs", 0.0):
                return False
            _place_jobs(problem, state, joint, jobs, byte_cost)
            if not task.progress(f"round {number}: choosing homes beside copies", 0.5):
                return False
            _place_homes(homes_alone, state, joint, scratch, budget, byte_cost)
            if before - self.cost(problem, state, joint) <= LEAST_ROUND_GAIN * before:
                break
        return True

    def cost(self, problem: PlacementProblem, state: PlacementState, joint: JointState) -> float:
        """Expressions 1 to 3 with jobs where they run, and what copies cost. `state`: with training priced at nothing."""
        byte_cost = self.copy_cost / problem.stored_total
        homes = float(state.sums[READS] + state.storage_cell_cost.sum())
        return homes + float(joint.cells.sum() + joint.nowhere[0] + byte_cost * joint.copied[0])


def joint_state_of(problem: PlacementProblem, state: PlacementState, replicas: Integers) -> JointState:
    """Every job where its tables are at home together and its GPUs are; no copies but those that exist."""
    gpus, priorities = problem.demand_total.shape
    tables, regions = len(state.home), problem.regions
    home_bit = np.left_shift(np.int64(1), state.home.astype(np.int64))
    held = replicas & ~home_bit
    copies = [float(problem.table_bytes[(held >> region & 1) > 0].sum()) for region in range(regions)]
    joint = JointState(
        job_region=np.full(len(problem.training), -1, np.int32),
        running=np.zeros((tables, regions), np.int32),
        held=held,
        demand=np.zeros((gpus, priorities, regions)),
        extra=np.zeros((gpus, priorities, regions)),
        cells=np.zeros((gpus, regions)),
        free=problem.storage_supply - state.stored - np.array(copies),
        copied=np.zeros(1),
        nowhere=np.zeros(1),
    )
    _fill_joint(problem, state, joint)
    return joint


def _copies(joint: JointState, home: Indices) -> Integers:
    """(T,) the copies that jobs need, and those that exist."""
    masks = joint.held.copy()
    for region in range(joint.running.shape[1]):
        masks |= np.where(joint.running[:, region] > 0, np.int64(1) << region, np.int64(0))
    return np.asarray(masks & ~np.left_shift(np.int64(1), home.astype(np.int64)))


@compiled
def _charge(problem: PlacementProblem, budget: CopyingBudget, table: int, present: int, target: int) -> None:
    charge(problem, budget, table, present, target)


@compiled
def _fill_joint(problem: PlacementProblem, state: PlacementState, joint: JointState) -> None:
    for job in range(len(problem.training)):
        gpu, region = problem.gpu_model[job], state.job_region[job]
        if not problem.training[job]:
            continue
        if gpu < 0 or region < 0 or problem.gpu_supply[gpu, region] <= 0.0:
            joint.nowhere[0] += problem.read_cost[job] * problem.read_bytes[job]
            continue
        joint.job_region[job] = region
        joint.demand[gpu, problem.priority[job], region] += problem.gpu_hours[job]
        for place in range(problem.table_start[job], problem.table_start[job + 1]):
            joint.running[problem.tables[place], region] += 1
    for gpu in range(joint.cells.shape[0]):
        for region in range(joint.cells.shape[1]):
            joint.cells[gpu, region] = _cell(problem, joint, gpu, 0, region, 0.0)


@compiled_part
def _cell(problem: PlacementProblem, joint: JointState, gpu: int, priority: int, region: int, more: float) -> float:
    """Expressions 7 and 8 for a cell with so many more GPU hours of a priority."""
    joint.extra[gpu, priority, region] = more
    cost = gpu_cell(problem, joint.demand, joint.extra, gpu, region)
    joint.extra[gpu, priority, region] = 0.0
    return float(cost)


@compiled_part
def _only_for(joint: JointState, home: Indices, table: int, region: int, jobs: int) -> bool:
    """Whether the region holds the table for so many jobs alone."""
    if home[table] == region or (joint.held[table] >> region) & 1:
        return False
    return bool(joint.running[table, region] == jobs)


@compiled_part
def _bytes_only_for(
    problem: PlacementProblem, joint: JointState, home: Indices, job: int, region: int, jobs: int
) -> float:
    """Bytes of the job's tables that the region holds for so many jobs alone: 0 for what is to be copied, 1 for what is free again."""
    total = 0.0
    for place in range(problem.table_start[job], problem.table_start[job + 1]):
        table = problem.tables[place]
        if _only_for(joint, home, table, region, jobs):
            total += problem.table_bytes[table]
    return total


@compiled_part
def _best_region_of_job(
    problem: PlacementProblem, state: PlacementState, joint: JointState, job: int, byte_cost: float
) -> int:
    """Where the job runs at the least cost; its present region, or none, where nothing is better."""
    present = joint.job_region[job]
    gpu, priority, hours = problem.gpu_model[job], problem.priority[job], problem.gpu_hours[job]
    leaving = -problem.read_cost[job] * problem.read_bytes[job]
    freed = 0.0
    if present >= 0:
        freed = _bytes_only_for(problem, joint, state.home, job, present, 1)
        leaving = _cell(problem, joint, gpu, priority, present, -hours) - joint.cells[gpu, present] - byte_cost * freed
    best = present
    least = -LEAST_GAIN
    for region in range(len(joint.free)):
        if region == present or problem.gpu_supply[gpu, region] <= 0.0:
            continue
        if problem.gpu_limited and joint.demand[gpu, :, region].sum() + hours > problem.gpu_supply[gpu, region]:
            continue
        lacking = _bytes_only_for(problem, joint, state.home, job, region, 0)
        if lacking > 0.0 and lacking > joint.free[region]:
            continue
        arriving = _cell(problem, joint, gpu, priority, region, hours) - joint.cells[gpu, region] + byte_cost * lacking
        if leaving + arriving < least:
            least = leaving + arriving
            best = region
    return int(best)


@compiled_part
def _run_in(
    problem: PlacementProblem, state: PlacementState, joint: JointState, job: int, region: int, sign: int
) -> None:
    """The job comes to the region (1) or leaves it (-1), and so do the copies that it alone needs."""
    moved = _bytes_only_for(problem, joint, state.home, job, region, 0 if sign > 0 else 1)
    joint.free[region] -= sign * moved
    joint.copied[0] += sign * moved
    for place in range(problem.table_start[job], problem.table_start[job + 1]):
        joint.running[problem.tables[place], region] += sign
    gpu, priority = problem.gpu_model[job], problem.priority[job]
    joint.demand[gpu, priority, region] += sign * problem.gpu_hours[job]
    joint.cells[gpu, region] = _cell(problem, joint, gpu, priority, region, 0.0)


@compiled
def _place_jobs(
    problem: PlacementProblem, state: PlacementState, joint: JointState, jobs: Integers, byte_cost: float
) -> None:
    """Each job to the region that is best for it, one after the other."""
    for job in jobs:
        present = joint.job_region[job]
        best = _best_region_of_job(problem, state, joint, job, byte_cost)
        if best == present:
            continue
        if problem.high[job] and present >= 0 and present == state.job_region[job]:
            # Expression 6 is counted by homes; a high-priority job that is at home stays there.
            continue
        if present >= 0:
            _run_in(problem, state, joint, job, present, -1)
        else:
            joint.nowhere[0] -= problem.read_cost[job] * problem.read_bytes[job]
        _run_in(problem, state, joint, job, best, 1)
        joint.job_region[job] = best


@compiled_part
def _more_copied(problem: PlacementProblem, joint: JointState, table: int, present: int, target: int) -> float:
    """Bytes of copies more, when the table's home changes: the new one is no copy then, the old one where a job runs is."""
    more = 0.0
    if joint.running[table, present] > 0:
        more += problem.table_bytes[table]
    if not (joint.held[table] >> target) & 1:
        more -= problem.table_bytes[table]
    return more


@compiled
def _place_homes(
    problem: PlacementProblem,
    state: PlacementState,
    joint: JointState,
    scratch: Scratch,
    budget: CopyingBudget,
    byte_cost: float,
) -> None:
    """Each table to the best home among the regions that hold it. `problem`: with training priced at nothing."""
    for table in range(len(state.home)):
        present = state.home[table]
        best = -1
        least = -LEAST_GAIN
        for target in range(len(joint.free)):
            if target == present or (joint.running[table, target] == 0 and not (joint.held[table] >> target) & 1):
                continue
            if not allows(problem, budget, table, present, target):
                continue
            change = price(problem, state, scratch, table, target)
            cost = change.reads + change.storage + byte_cost * _more_copied(problem, joint, table, present, target)
            if change.legal and change.at_home >= 0.0 and cost < least:
                least = cost
                best = target
        if best < 0:
            continue
        joint.copied[0] += _more_copied(problem, joint, table, present, best)
        if joint.running[table, present] == 0:
            joint.free[present] += problem.table_bytes[table]
        charge(problem, budget, table, present, best)
        apply_move(problem, state, scratch, table, best)
        joint.held[table] &= ~(np.int64(1) << best)
