"""Waiting on virtual time: a workload comes into the queue, is promoted when it has waited for too long, and what others
that complete received may give the queue another order."""

from __future__ import annotations

import math

from domain.rank import Standing
from domain.snapshot import CompletedService
from global_scheduler.knowledge import Knowledge
from simulator.engine.event_queue import Happens
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World


def enter_queue(world: World, work: SimulatedWorkload, now: float, *, since_s: float | None = None) -> None:
    """It waits from now on, or has waited since then."""
    work.runs_no_more()
    for observer in world.observers:
        observer.comes_to_queue(work)
    work.queued_since_s = now if since_s is None else since_s
    if not world.policy.scans:
        level = world.one.queued_level(work, now)
        if work.standing != (0, level):
            work.standing = Standing(0, level)
    world.queue.add(work, now)
    world.news = True
    due_s = world.one.promoted_from_s(work, now)
    if not math.isinf(due_s):
        world.events.add(max(now, due_s), Happens.PROMOTION, work.index, work.token)


def promotion_due(world: World, work: SimulatedWorkload, now: float) -> None:
    """It still waits, and has waited for so long that it is promoted: at once, or by the next scan pass."""
    world.news = True
    if world.policy.scans or world.one.promoted_from_s(work, now) > now:
        return
    world.queue.remove(work)
    promote(world, work, Standing(work.standing.priority, 0), now)
    work.standing = Standing(work.standing.priority, world.one.queued_level(work, now))
    world.queue.add(work, now)


def promote(world: World, work: SimulatedWorkload, standing: Standing, now: float) -> None:
    """What it attained counts from zero again; `standing` is where it waits from now on."""
    world.recorder.promotions += 1
    if world.log is not None:
        world.log.promoted(work, standing, now)
    work.promote()


def learn_service(world: World, work: SimulatedWorkload, now: float) -> None:
    """It has completed: policies that go by the service of completed workloads may order the queue otherwise."""
    for observer in world.observers:
        observer.completed(work)
    if world.policy.ordering.needs is not Knowledge.COMPLETED:
        return
    if work.service_gpu_s > 0:
        world.completed_service.append(CompletedService(work.workload.specification.tenant, work.service_gpu_s))
    if world.service.completed(work.workload.specification.tenant, work.service_gpu_s):
        world.queue.rank_anew(now)
        world.news = True
