"""Attempts on virtual time: what the event queue says happens goes into their machine, what comes out is done.

The machine is `cluster_manager.attempt_run.machine`, as in the service; clusters are emulated by a price list.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import assert_never

from cluster_manager.attempt_run.actions import (
    AttemptAction,
    GoOnWithout,
    RecordCheckpoint,
    RecordEnd,
    RecordLeaving,
    RecordProgress,
    RecordSizes,
    RecordStart,
    SetUp,
    Stop,
)
from cluster_manager.attempt_run.events import (
    AttemptEvent,
    Completed,
    Eviction,
    FlexibleTasksLost,
    Gone,
    LeaveAsked,
    MachineLost,
    PlaceFreed,
    Resized,
    Started,
)
from cluster_manager.attempt_run.machine import step
from cluster_manager.attempt_run.run import lost_with_machine, new_run, stop_grace_s
from domain.cells import virtual_cluster_of
from domain.events import EventKind, EvictionCause
from domain.eviction import remembered_preemptions
from domain.identifiers import MachineId, WorkloadId
from domain.life_cycle import ENDED, Happening, State
from domain.machine_life_cycle import MACHINE_EVENTS, MachineHappening
from domain.placement import AttemptKey, Holding, TaskPlacement, amounts_of, machines_of
from domain.placement_changes import LossCause, name_of
from domain.plan import Action, Reclaim, TaskName, execute
from domain.rank import Standing
from domain.snapshot import RunningAttempt
from regional_scheduler.plan_application import RESERVED, apply_actions, apply_plan
from simulator.engine.attempt_ends import await_end, end_unfinished
from simulator.engine.event_queue import Happens
from simulator.engine.flexible_losses import flexible_tasks_lost
from simulator.engine.leaving_in_cells import awaiting, leaving_in_cells, wait_no_longer
from simulator.engine.placement_changes import PlacementChanges
from simulator.engine.plan_execution import SimulatedExecution
from simulator.engine.regions import Win
from simulator.engine.taken_over import stand_as_taken_over
from simulator.engine.waiting import enter_queue, learn_service
from simulator.engine.workloads import KeptPlace, SimulatedWorkload
from simulator.engine.world import World
from simulator.results.run_record import NO_ROW


class Attempts:
    """Moves attempts along."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._changes = PlacementChanges(world)
        self._costs = world.settings.costs
        self._waits_for_time = world.eviction_rule.waits_for_time

    # What happens.

    def dispatch(self, work: SimulatedWorkload, win: Win) -> None:
        """Carries out a win: charges the plan, asks its victims to leave, and starts the attempt when they are gone."""
        world, now, (region, plan, lot, _) = self._world, self._world.clock.now(), win
        inventory = world.regions.members[region].inventory
        victims = plan.evictions if len(plan.actions) > 1 else ()
        world.queue.remove(work)
        work.runs_in(win.way)
        work.attempts += 1
        work.token += 1
        work.key = lot.key
        work.run = new_run(work.facts())
        work.region, work.standing, work.guaranteed = region, lot.position.standing, lot.position.within_quota
        work.dispatched_s, work.started_s = now, math.nan
        work.placements, cells = plan.start
        work.virtual_cluster, work.cpus = virtual_cluster_of(cells), amounts_of(work.placements).cpus
        work.happens(Happening.DISPATCHED)
        apply_plan(inventory, plan, now, lot)
        if victims:
            world.look_back(inventory, work.key, plan)
        self._await_evictable(work)
        world.live[work.index] = work
        if world.columns is not None:
            world.columns.dispatch(work)
        self._hold(work, 1)
        world.recorder.dispatched(work, inventory.entries_of(work.key), now)
        if world.log is not None:
            world.log.dispatched(work, work.placements, victims, now, plan.own_cells)
        # None but its victims are in its way (`making_room`), as the invariants of a run check; but for places in cells.
        others = leaving_in_cells(world, work, plan) if cells else []
        work.victims_left = len(victims) + len(others)
        for other in others:
            other.also_awaited_by.append((work, work.token))
        if len(plan.actions) > 1:  # there is more to do than its own start
            execute(plan.actions, SimulatedExecution(world, self, region, work))
        if not victims and not others:
            self._take(work, PlaceFreed(now))

    def carry_out(self, region: int, actions: Sequence[Action]) -> None:
        """Carries out what is to be done with what runs already: it starts nothing, and makes room for nothing new.

        One action after the other: an attempt may only hold at once what one before it has given up.
        """
        inventory, now = self._world.regions.members[region].inventory, self._world.clock.now()
        for action in actions:
            apply_actions(inventory, (action,), now)
            execute((action,), SimulatedExecution(self._world, self, region, None))

    def workload_of(self, attempt: AttemptKey) -> SimulatedWorkload:
        """Raises KeyError when its workload has ended."""
        return self._world.by_name[attempt.workload]

    def make_room(self, victim: SimulatedWorkload, newcomer: SimulatedWorkload, *, own_cells: bool = False) -> None:
        """The victim saves its work and leaves; the newcomer starts when its last victim has."""
        victim.makes_room_for, victim.room_token = newcomer, newcomer.token
        eviction = Eviction(EvictionCause.PREEMPTED, newcomer.key, newcomer.standing, own_cells=own_cells)
        self._take(victim, LeaveAsked(self._world.clock.now(), eviction))

    def change(self, work: SimulatedWorkload, kind: EventKind) -> None:
        """It is given what its region's inventory says now, and holds that as soon as it is free."""
        holding = self._world.regions.members[work.region].inventory.holding(work.key)
        placements = self._changes.begin(work, kind, holding.placements) if holding is not None else None
        if placements is not None:
            self._resize(work, kind, placements)

    def change_waits(self, work: SimulatedWorkload) -> bool:
        """Whether it does not hold yet what it was given last."""
        return self._changes.waits(work)

    def _resize(
        self,
        work: SimulatedWorkload,
        kind: EventKind,
        placements: tuple[TaskPlacement, ...],
        lost: tuple[TaskName, ...] = (),
    ) -> None:
        """It holds these from now on, and is as fast as its tasks make it."""
        now = self._world.clock.now()
        self._take(work, Resized(now, placements))
        if self._world.log is not None:
            rate = work.speed * self._world.speed.of(work.workload.specification, placements)
            cause = LossCause.MACHINE_LOST if lost else None
            self._world.log.changed(work, kind, placements, rate, now, cause, lost)

    def migrate(self, work: SimulatedWorkload, place: KeptPlace, room_for: WorkloadId | None = None) -> None:
        """It saves its work and stops; its next attempt starts in this place, which is kept for it."""
        work.goes_on_in = place
        migration = Eviction(EvictionCause.MIGRATED, to=machines_of(place[1]), room_for=room_for)
        self._take(work, LeaveAsked(self._world.clock.now(), migration))

    def lose_place(self, work: SimulatedWorkload) -> None:
        """The place that was kept for its next attempt, if there is one, is lost: it returns to the queue like others."""
        if work.goes_on_in is not None:
            self._world.regions.members[work.goes_on_in[0]].inventory.release(work.key.successor)
            work.goes_on_in = None

    def take_over(self, work: SimulatedWorkload, attempt: RunningAttempt) -> None:
        """The workload has that attempt as the run begins: it holds its place; `go_on` follows when all attempts do.

        Raises what `RegionCapacity.hold` raises.
        """
        world, now = self._world, self._world.clock.now()
        eviction = stand_as_taken_over(work, attempt, now)
        inventory = world.regions.members[work.region].inventory
        inventory.hold(work.holding(attempt.placements, inventory.rule)._replace(cells=attempt.cells))
        self._await_evictable(work)
        work.placements, work.virtual_cluster = attempt.placements, virtual_cluster_of(attempt.cells)
        world.live[work.index] = work
        if world.columns is not None:
            world.columns.dispatch(work)
        self._hold(work, 1)
        world.recorder.dispatched(work, inventory.entries_of(work.key), work.dispatched_s)
        if attempt.started_s is not None:
            world.recorder.started(work, attempt.started_s)
            if world.columns is not None:
                world.columns.start(work)
        if eviction is not None:
            inventory.begin_eviction(work.key)
            if world.columns is not None:
                world.columns.leave(work)

    def keep_place(self, work: SimulatedWorkload, region: int, placements: tuple[TaskPlacement, ...]) -> None:
        """The next attempt of one that was taken over will start there. Raises what `RegionCapacity.hold` raises."""
        inventory = self._world.regions.members[region].inventory
        inventory.hold(Holding(work.key.successor, RESERVED, self._world.clock.now(), placements))
        work.goes_on_in = region, placements

    def go_on(self, work: SimulatedWorkload) -> None:
        """What is to come of an attempt that was taken over."""
        world, now = self._world, self._world.clock.now()
        if work.state is State.PREEMPTING:
            asked_s = now if work.emulated is None else work.emulated.anchor_s
            gone_s = asked_s + self._save(work, stop_grace_s(work.run), asked_s)
            world.events.add(max(now, gone_s), Happens.VACATED, work.index, work.token)
        elif work.goes_on_in is not None:
            self.migrate(work, work.goes_on_in)
        elif work.emulated is not None:
            self.set_level(work)
            await_end(world, work, now)
        elif not work.victims_left:
            set_up_s = self._costs.set_up_s(work.progress)
            world.events.add(max(now, work.dispatched_s + set_up_s), Happens.START, work.index, work.token)

    def tell_to_leave(self, work: SimulatedWorkload, cause: EvictionCause, limit_s: float | None = None) -> None:
        """The attempt has to leave, for no other one: it is gone when its work is saved, or at once if there is none."""
        self._take(work, LeaveAsked(self._world.clock.now(), Eviction(cause, limit_s=limit_s)))

    def give_back(self, region: int, reclaim: Reclaim) -> None:
        """Machines are asked back, as the inventory knows already: attempts on them leave, places kept there are lost."""
        world = self._world
        inventory, event = world.regions.members[region].inventory, MACHINE_EVENTS.get(MachineHappening.ASKED_BACK)
        for machine in reclaim.machines:
            world.put_machine(region, machine, inventory.machine_state(machine), event, "inference wants it back")
        for victim in sorted(reclaim.victims, key=lambda one: self.workload_of(one).index):
            work = self.workload_of(victim)
            if victim == work.key:
                self.tell_to_leave(work, EvictionCause.RECLAIMED)
            else:
                self.lose_place(work)

    def lose(self, works: Iterable[SimulatedWorkload], down: Sequence[MachineId], why: str) -> list[SimulatedWorkload]:
        """These machines are down: attempts with base tasks there, which are returned, are gone; others go on with less."""
        now, losing = self._world.clock.now(), self._changes.losing(works, down, why)
        going_on = {work.index: left for work in losing if (left := flexible_tasks_lost(work, down))}
        lost = [work for work in losing if work.index not in going_on]
        # All of them first: none may start in the place of another one that is lost with it.
        for work in lost:
            work.token += 1
        for work in losing:
            tasks = going_on.get(work.index)
            self._take(work, FlexibleTasksLost(now, tasks) if tasks else MachineLost(now))
        return lost

    def vacate(self, work: SimulatedWorkload) -> None:
        """Nothing of the attempt runs any more; what is waiting for its place may start."""
        now = self._world.clock.now()
        gone, awaited_by = work.key, awaiting(work)
        self._take(work, Gone(now, work.progress_at(now), work.kept))
        for newcomer in wait_no_longer(work, awaited_by):
            self._take(newcomer, PlaceFreed(now))
        for other, kind in self._changes.ready_after(gone):
            holding = self._world.regions.members[other.region].inventory.holding(other.key)
            if holding is not None:
                self._resize(other, kind, holding.placements)

    def start(self, work: SimulatedWorkload) -> None:
        """All tasks run from now on."""
        self._take(work, Started(self._world.clock.now()))

    def complete(self, work: SimulatedWorkload) -> None:
        """All work is done."""
        self._take(work, Completed(self._world.clock.now(), work.work_s, work.work_s))

    def _take(self, work: SimulatedWorkload, event: AttemptEvent) -> None:
        run, actions = step(work.run, event)
        work.run, work.state = run, run.state
        for action in actions:
            self._do(work, action)

    # What has to be done about it.

    def _do(self, work: SimulatedWorkload, action: AttemptAction) -> None:
        match action:
            case SetUp():
                self._set_up(work, action)
            case RecordStart():
                self._record_start(work, action)
            case RecordEnd():
                self._record_end(work, action)
            case RecordLeaving():
                self._record_leaving(work, action)
            case Stop():
                self._stop(work, action)
            case RecordSizes():
                self._record_sizes(work, action)
            case GoOnWithout():
                self._go_on_without(work, action)
            case RecordProgress() | RecordCheckpoint():
                raise ValueError(f"a simulated workload reports nothing on the way: {action}")
            case _:
                assert_never(action)

    def _set_up(self, work: SimulatedWorkload, action: SetUp) -> None:
        """Containers start, and what was saved is read."""
        world, now = self._world, self._world.clock.now()
        ready_s = now + self._costs.set_up_s(action.progress)
        if ready_s > now:
            world.events.add(ready_s, Happens.START, work.index, work.token)
        else:
            self._take(work, Started(now))

    def _record_start(self, work: SimulatedWorkload, action: RecordStart) -> None:
        world, now = self._world, action.started_s
        work.started_s, work.first_started_s = now, min(now, work.first_started_s)
        speed = work.speed * world.speed.at_start(work.workload.specification, work.placements)
        work.begins(now, speed)
        if world.columns is not None:
            world.columns.start(work)
        world.recorder.started(work, now)
        inventory = world.regions.members[work.region].inventory
        inventory.begin_run(work.key, now)
        world.news |= inventory.change_carried_out(work.key)
        self._await_evictable(work)
        if world.log is not None:
            holding = inventory.holding(work.key)
            world.log.started(work, holding.placements if holding is not None else (), now, speed)
        self.set_level(work)
        await_end(world, work, now)
        for observer in world.observers:
            observer.started(work)

    def _record_sizes(self, work: SimulatedWorkload, action: RecordSizes) -> None:
        """What it holds and how fast it is from now on; what was expected of it is expected at another time."""
        world, now = self._world, self._world.clock.now()
        gpus, cpus = amounts_of(action.placements)
        self._hold(work, -1)
        work.placements = action.placements
        work.goes_at(work.speed * world.speed.of(work.workload.specification, action.placements), gpus, now)
        work.cpus = cpus
        self._hold(work, 1)
        work.token += 1
        if world.columns is not None:
            world.columns.refresh(work)
        inventory = world.regions.members[work.region].inventory
        world.recorder.changed(work, inventory.entries_of(work.key), now)
        self._await_evictable(work)
        self.set_level(work)
        await_end(world, work, now)
        world.news = True

    def _go_on_without(self, work: SimulatedWorkload, action: GoOnWithout) -> None:
        left = tuple([placement for placement in work.placements if name_of(placement) not in action.tasks])
        self._world.regions.members[work.region].inventory.replace_placements(work.key, left)
        self._resize(work, EventKind.RESIZED, left, action.tasks)

    def _record_leaving(self, work: SimulatedWorkload, action: RecordLeaving) -> None:
        """It stops working, and makes room."""
        world, now = self._world, self._world.clock.now()
        self._changes.drop(work)
        if work.emulated is not None:
            work.count_service(now)
            work.emulated = work.emulated.at_speed(0.0, now)
        work.token += 1
        if world.log is not None:
            world.log.evicting(work, action.eviction, now)
        if world.columns is not None:
            world.columns.leave(work)
        inventory = world.regions.members[work.region].inventory
        inventory.begin_eviction(work.key)
        if action.eviction.cause is EvictionCause.PREEMPTED:
            work.preempted_s = remembered_preemptions(inventory.rule, (*work.preempted_s, now))

    def _stop(self, work: SimulatedWorkload, action: Stop) -> None:
        """It is gone when its work is saved, or its grace is over; at once if a machine under it is lost."""
        world, now = self._world, self._world.clock.now()
        takes_s = self._save(work, work.stops_within_s(action.grace_s, world.settings.loaned.reclaim_deadline_s), now)
        if work.run.eviction is not None and work.run.eviction == lost_with_machine(work.run.eviction):
            work.token += 1
            self.vacate(work)
        else:
            world.events.add(now + takes_s, Happens.VACATED, work.index, work.token)

    def _save(self, work: SimulatedWorkload, grace_s: float, now: float) -> float:
        """Settles what is kept of its work when it stops with that grace; returns the seconds that this takes."""
        if work.emulated is None:
            work.kept = work.progress
            return 0.0
        work.kept, takes_s = work.emulated.stopped(grace_s, self._costs.checkpoint_save_s, now)
        return takes_s

    def _record_end(self, work: SimulatedWorkload, end: RecordEnd) -> None:
        """It holds nothing any more; its workload is in the queue again, or has ended."""
        world, now = self._world, self._world.clock.now()
        completed = end.next_state is State.COMPLETED
        if completed:
            work.count_service(now)
        work.token += 1
        self._changes.drop(work)
        self._release(work)
        work.emulated = None
        if completed:
            work.progress = end.progress
            learn_service(world, work, now)
            world.recorder.completed(work, now)
            if world.log is not None:
                world.log.completed(work, now)
            del world.by_name[work.workload.workload]
            return
        if end.next_state in ENDED:
            self.lose_place(work)
            end_unfinished(world, work, end)
            return
        eviction = work.run.eviction
        if eviction is None or end.next_state is not State.PENDING:
            raise ValueError(f"a simulated attempt is evicted or completes: {end}")
        if not end.migrates:
            self.lose_place(work)
        by = NO_ROW if eviction.by is None or work.makes_room_for is None else work.makes_room_for.index
        world.recorder.evicted(work, eviction.cause, end, by)
        if world.log is not None:
            successor = work.key.successor.attempt if work.goes_on_in is not None else None
            world.log.evicted(work, eviction, end, successor)
        work.progress = end.checkpoint_progress
        work.started_s = math.nan
        if work.goes_on_in is not None:
            self._go_on_elsewhere(work, *work.goes_on_in)
        else:
            self.queue(work)

    def _go_on_elsewhere(self, work: SimulatedWorkload, region: int, placements: tuple[TaskPlacement, ...]) -> None:
        """The next attempt begins in the place that was kept for it, with the standing that this one had."""
        world, now = self._world, self._world.clock.now()
        inventory = world.regions.members[region].inventory
        work.goes_on_in = None
        work.attempts += 1
        work.token += 1
        work.key = work.key.successor
        work.run = new_run(work.facts())
        work.region, work.dispatched_s = region, now
        work.placements, work.cpus = placements, amounts_of(placements).cpus
        work.guaranteed, work.virtual_cluster = work.within_quota, None
        work.happens(Happening.DISPATCHED)
        inventory.release(work.key)
        inventory.hold(work.holding(placements, inventory.rule))
        self._await_evictable(work)
        world.live[work.index] = work
        if world.columns is not None:
            world.columns.dispatch(work)
        self._hold(work, 1)
        world.recorder.dispatched(work, inventory.entries_of(work.key), now)
        if world.log is not None:
            world.log.dispatched(work, placements, (), now)
        self._take(work, PlaceFreed(now))

    # Where it stands.

    def queue(self, work: SimulatedWorkload) -> None:
        """It waits from now on."""
        enter_queue(self._world, work, self._world.clock.now())

    def set_level(self, work: SimulatedWorkload) -> None:
        """The level at which it runs from now on, by the policy; and when to look again."""
        world, now = self._world, self._world.clock.now()
        level, until_s = world.one.running_level(work, now)
        if level != work.standing.level:
            self.set_standing(work, Standing(work.standing.priority, level))
        if until_s < math.inf and until_s < now + work.remaining_s:
            world.events.add(max(now, until_s), Happens.LEVEL_CHANGE, work.index, work.token)

    def set_standing(self, work: SimulatedWorkload, standing: Standing) -> None:
        """Its place in the order of eviction from now on."""
        world = self._world
        if standing.priority == work.standing.priority and standing.level > work.standing.level:
            world.recorder.demotions += 1
        work.standing = standing
        if world.columns is not None:
            world.columns.stand(work)
        world.regions.members[work.region].inventory.set_standing(work.key, standing)
        world.news = True
        if world.log is not None:
            world.log.reclassified(work, world.clock.now())

    def _await_evictable(self, work: SimulatedWorkload) -> None:
        """Has the queue looked at again when time makes the attempt evictable."""
        if not self._waits_for_time:
            return
        world = self._world
        holding = world.regions.members[work.region].inventory.holding(work.key)
        if holding is not None and world.clock.now() < holding.evictable_from_s < math.inf:
            world.events.add(holding.evictable_from_s, Happens.EVICTABLE, work.index, work.token)

    def _release(self, work: SimulatedWorkload) -> None:
        world = self._world
        world.regions.members[work.region].inventory.release(work.key)
        del world.live[work.index]
        if world.columns is not None:
            world.columns.end(work)
        self._hold(work, -1)
        work.gpus, work.gained_s, work.made_up_gpu_s = work.base_gpus, 0.0, 0.0
        world.news = True

    def _hold(self, work: SimulatedWorkload, sign: int) -> None:
        world = self._world
        world.tenant_gpus[work.tenant] += sign * work.gpus
        if world.policy.scans:
            # As the service counts: also the CPUs that come with GPUs.
            world.tenant_use.change(work.tenant, sign * float(work.gpus), sign * work.cpus, world.clock.now())
