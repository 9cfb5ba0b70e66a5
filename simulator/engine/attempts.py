"""The life of attempts: dispatched, started, told to leave, gone, completed. Each step by the life cycle's table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from domain.events import EvictionCause
from domain.life_cycle import Happening, State
from domain.rank import Standing
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.rounds import Lot
from simulator.engine.event_log import Evictor
from simulator.engine.event_queue import Happens
from simulator.engine.regions import Win
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World
from simulator.results.run_record import NOBODY


class Attempts:
    """Moves attempts along."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._evictors: dict[int, Evictor] = {}
        """For whom a leaving workload makes room, by its index."""

    def dispatch(self, work: SimulatedWorkload, lot: Lot, win: Win) -> None:
        """Carries out a win: charges the plan, asks its victims to leave, and starts the attempt when they are gone."""
        world, now = self._world, self._world.clock.now()
        inventory = world.room.desks[win.region].inventory
        world.queue.remove(work)
        work.attempts += 1
        work.token += 1
        work.key = lot.key
        work.region, work.standing = win.region, lot.position.standing
        work.dispatched_s, work.started_s = now, math.nan
        work.happens(Happening.DISPATCHED)
        apply_plan(inventory, win.plan, now, lot)
        world.live[work.index] = work
        if world.columns is not None:
            world.columns.dispatch(work)
        self._hold(work, 1)
        world.recorder.dispatched(work, inventory.entries_of(work.key), now)
        victims = [world.by_name[victim.workload] for victim in win.plan.evictions]
        if world.log is not None:
            world.log.dispatched(work, win.plan.placements, win.plan.evictions, now)
        work.victims_left = len(victims)
        for victim in victims:
            victim.makes_room_for, victim.room_token = work, work.token
            self.tell_to_leave(victim, EvictionCause.PREEMPTED, (work, work.standing))
        if not victims:
            self._set_up(work)

    def tell_to_leave(self, work: SimulatedWorkload, cause: EvictionCause, by: Evictor | None = None) -> None:
        """The attempt stops working. It is gone when its work is saved; at once if there is none, or no time to."""
        world, now = self._world, self._world.clock.now()
        lost = cause is EvictionCause.MACHINE_LOST
        saves = work.running and not lost
        work.reached = work.progress_at(now) if work.running else work.progress
        if work.running:
            work.kept = work.reached if saves else work.checkpoint_at(now)
            self._count_service(work, now)
        else:
            work.kept = work.progress
        work.leaves_because = cause
        work.token += 1
        if by is not None:
            self._evictors[work.index] = by
        if world.log is not None:
            world.log.evicting(work, cause, by, now)
        if world.columns is not None:
            world.columns.leave(work)
        inventory = world.room.desks[work.region].inventory
        inventory.begin_eviction(work.key)
        work.happens(Happening.EVICTION_BEGAN)
        save_s = world.settings.costs.checkpoint_save_s if saves else 0.0
        world.events.add(now + save_s, Happens.VACATED, work.index, work.token)

    def lose(self, works: Sequence[SimulatedWorkload]) -> None:
        """Machines under these attempts are lost: they are gone at once, with what a checkpoint had kept."""
        # All of them first: none may start in the place of another one that is lost with it.
        for work in works:
            work.token += 1
        for work in works:
            if work.state is State.PREEMPTING:
                # It was saving its work: that comes to nothing.
                work.kept = min(work.kept, self._safe_while_leaving(work))
                work.leaves_because = EvictionCause.MACHINE_LOST
                self._evictors.pop(work.index, None)
            else:
                self.tell_to_leave(work, EvictionCause.MACHINE_LOST)
            work.token += 1
            self.vacate(work)

    def vacate(self, work: SimulatedWorkload) -> None:
        """The attempt is gone, and back in the queue; whoever waited for its place may start."""
        world, now = self._world, self._world.clock.now()
        cause = work.leaves_because
        if cause is None:
            raise ValueError(f"{work.workload.workload} was not told to leave")
        by = self._evictors.pop(work.index, None)
        self._release(work)
        world.recorder.evicted(work, cause, by[0].index if by is not None else NOBODY, now)
        if world.log is not None:
            world.log.evicted(work, cause, by, now)
        work.happens(Happening.EVICTED)
        work.progress = work.kept
        newcomer, token = work.makes_room_for, work.room_token
        work.makes_room_for, work.leaves_because = None, None
        work.started_s = math.nan
        self.queue(work)
        if newcomer is not None and newcomer.token == token:
            newcomer.victims_left -= 1
            if newcomer.victims_left == 0:
                self._set_up(newcomer)

    def queue(self, work: SimulatedWorkload) -> None:
        """It waits from now on."""
        world, now = self._world, self._world.clock.now()
        work.queued_since_s = now
        if not world.policy.scans:
            level = world.policy.levels.queued_level(work, now)
            work.standing = Standing(0, level)
        world.queue.add(work, now)
        world.news = True

    def start(self, work: SimulatedWorkload) -> None:
        """All tasks run from now on."""
        world, now = self._world, self._world.clock.now()
        work.started_s = now
        work.happens(Happening.STARTED)
        if world.columns is not None:
            world.columns.start(work)
        world.recorder.started(work, now)
        inventory = world.room.desks[work.region].inventory
        if world.log is not None:
            holding = inventory.holding(work.key)
            world.log.started(work, holding.placements if holding is not None else (), now)
        self.set_level(work)
        world.events.add(now + work.remaining_s, Happens.COMPLETION, work.index, work.token)

    def set_level(self, work: SimulatedWorkload) -> None:
        """The level at which it runs from now on, by the policy; and when to look again."""
        world, now = self._world, self._world.clock.now()
        level, until_s = world.policy.levels.running_level(work, now)
        if level != work.standing.level:
            self.set_standing(work, Standing(work.standing.priority, level))
        if until_s < now + work.remaining_s:
            world.events.add(max(now, until_s), Happens.LEVEL_CHANGE, work.index, work.token)

    def set_standing(self, work: SimulatedWorkload, standing: Standing) -> None:
        """Its place in the order of eviction from now on."""
        world = self._world
        work.standing = standing
        if world.columns is not None:
            world.columns.stand(work)
        world.room.desks[work.region].inventory.set_standing(work.key, standing)
        world.news = True
        if world.log is not None:
            world.log.reclassified(work, world.clock.now())

    def complete(self, work: SimulatedWorkload) -> None:
        """All work is done."""
        world, now = self._world, self._world.clock.now()
        self._count_service(work, now)
        work.token += 1
        self._release(work)
        work.progress = work.work_s
        work.happens(Happening.COMPLETED)
        world.recorder.completed(work, now)
        if world.log is not None:
            world.log.completed(work, now)
        del world.by_name[work.workload.workload]

    def _set_up(self, work: SimulatedWorkload) -> None:
        """Its place is free: containers start, and what was saved is read."""
        world, now = self._world, self._world.clock.now()
        costs = world.settings.costs
        ready_s = now + costs.container_start_s + (costs.restore_s if work.attempts > 1 and work.progress > 0 else 0.0)
        if ready_s > now:
            world.events.add(ready_s, Happens.START, work.index, work.token)
        else:
            self.start(work)

    def _release(self, work: SimulatedWorkload) -> None:
        world = self._world
        world.room.desks[work.region].inventory.release(work.key)
        del world.live[work.index]
        if world.columns is not None:
            world.columns.end(work)
        self._hold(work, -1)
        world.news = True

    def _hold(self, work: SimulatedWorkload, sign: int) -> None:
        world = self._world
        world.tenant_gpus[work.tenant] += sign * work.gpus
        if world.policy.scans:
            # As the service counts: also the CPUs that come with GPUs.
            world.tenant_use.change(work.tenant, sign * float(work.gpus), sign * work.cpus, world.clock.now())

    def _count_service(self, work: SimulatedWorkload, now: float) -> None:
        if not math.isnan(work.started_s):
            work.attained_s += now - work.started_s
            work.attained_gpu_s += (now - work.started_s) * work.gpus

    def _safe_while_leaving(self, work: SimulatedWorkload) -> float:
        """The last periodic checkpoint of an attempt that was told to leave after reaching `reached`."""
        interval_s = work.checkpoint_interval_s
        if interval_s <= 0 or math.isnan(work.started_s):
            return work.progress
        return work.progress + math.floor((work.reached - work.progress) / interval_s + 1e-9) * interval_s
