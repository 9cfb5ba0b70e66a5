"""With how much CPU and memory a workload starts where attempts are tuned (Synergy §4.2).

Rule: it starts with the first of the amounts that the mechanism has it ask for which some machines have idle, on those that
fit most tightly, and with which it is as fast there as with its proportional share; else with that share in the place that
was planned for it, for which others give back what they hold beyond theirs.

Invariants: it evicts and scales in nothing that the plan for its proportional share does not; it is never slower than with
that share (I7). What it asks for goes by one machine, and others may have more for each GPU.
"""

from __future__ import annotations

from dataclasses import replace

from domain.plan import EVICTS_NOTHING, Plan, Start, reclaim_class
from domain.rank import Standing
from domain.tenant import LOWEST_PRIORITY
from domain.tuned_speed import ProfilesOfJobs, tuned_speed
from regional_scheduler.asked_amounts import AskedAmounts
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.rounds import Lot

_EVICTS_NOTHING = Standing(LOWEST_PRIORITY, 2**31)
"""Nothing stands worse: a plan at this standing evicts nothing."""
_SLACK = 1e-9
"""Speeds are ratios of rounded amounts."""


def tuned_start(
    region: RegionCapacity, plan: Plan, lot: Lot, profiles: ProfilesOfJobs, asked: AskedAmounts, now: float
) -> Plan:
    """The plan for the lot with the amounts with which it starts; `plan` is the one for its proportional share."""
    if not profiles or reclaim_class(plan.actions) != EVICTS_NOTHING:
        return plan
    submitted = {job.name: job for job in lot.workload.specification.jobs}
    for specification in asked.of(lot.workload.specification, profiles):
        workload = replace(lot.workload, specification=specification)
        found = plan_workload(region, workload, _EVICTS_NOTHING, now, within_quota=lot.position.within_quota)
        if not isinstance(found, Plan) or not all(isinstance(action, Start) for action in found.actions):
            continue
        tuned = {job.name: profiles[job.name] for job in specification.jobs if job != submitted[job.name]}
        if tuned_speed(tuned, found.placements, asked.shares) >= 1.0 - _SLACK:
            return found
    return plan
