"""A snapshot of a simulation: what `resuming` takes over again."""

from __future__ import annotations

import math

from domain.cells import CellUse
from domain.eviction import HOUR_S
from domain.fleet import MachineState
from domain.identifiers import JobName
from domain.life_cycle import QUEUED
from domain.placement import Holding
from domain.rank import QueuePosition
from domain.snapshot import Leaving, NextPlace, QueuedWorkload, RunningAttempt, ServiceSoFar, Snapshot, UseStretch
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World


def snapshot_of(world: World) -> Snapshot:
    """Everything of the world that has not ended, at the time of its clock."""
    now = world.clock.now()
    queued = [
        work
        for work, refused in zip(world.workloads, world.refused, strict=True)
        if work.state in QUEUED and not refused
    ]
    return Snapshot(
        taken_s=now,
        fleet=world.fleet,
        tables=tuple(world.catalog),
        tenants=tuple(world.tenants),
        machine_states={
            machine: state
            for member in world.regions.members
            for machine in member.inventory.machine_ids
            if (state := member.inventory.machine_state(machine)) is not MachineState.UP
        },
        queue=tuple(_queued(world, work) for work in queued),
        running=tuple(_running(world, world.live[index]) for index in sorted(world.live)),
        use=tuple(
            UseStretch(world.tenants[tenant].tenant, start_s, end_s, gpu_seconds, cpu_seconds)
            for tenant, start_s, end_s, gpu_seconds, cpu_seconds in world.tenant_use.stretches(now)
        ),
        completed_service=tuple(world.completed_service),
        iteration_times=world.packlimit.history.items(),
    )


def _queued(world: World, work: SimulatedWorkload) -> QueuedWorkload:
    ranked = world.columns is not None and world.columns.is_ranked(work)
    position = QueuePosition(work.workload.workload, work.standing, work.credit, work.submitted_s, work.within_quota)
    return QueuedWorkload(
        workload=work.workload,
        state=work.state,
        queued_since_s=work.queued_since_s,
        so_far=ServiceSoFar(
            work.attempts,
            0,
            work.progress,
            work.before_promotion_s + work.attained_s,
            work.service_gpu_s,
            work.before_promotion_s,
            work.before_promotion_gpu_s,
            None if math.isinf(work.first_started_s) else work.first_started_s,
        ),
        position=position if ranked else None,
        preempted_s=_of_last_hour(world, work),
    )


def _running(world: World, work: SimulatedWorkload) -> RunningAttempt:
    member = world.regions.members[work.region]
    now = world.clock.now()
    reached = work.progress_at(now)
    eviction = work.run.eviction
    changed = work.changed_so_far()
    # What is counted of it already; in a snapshot that follows with its end.
    counted_s, counted_gpu_s = 0.0, work.made_up_gpu_s
    if eviction is not None and changed is not None:
        counted_s, counted_gpu_s = changed.to_s - work.started_s, changed.gpu_s
    started_s = math.inf if math.isnan(work.started_s) else work.started_s
    return RunningAttempt(
        workload=work.workload,
        key=work.key,
        region=member.region,
        state=work.state,
        standing=work.standing,
        within_quota=work.within_quota,
        dispatched_s=work.dispatched_s,
        started_s=None if math.isinf(started_s) else started_s,
        progress_at_start=work.progress,
        progress=reached,
        checkpoint_progress=work.checkpoint_at(now) if eviction is None else work.kept,
        placements=work.placements,
        so_far=ServiceSoFar(
            attempts=work.attempts - 1,
            checkpoint_progress=work.progress,
            attained_s=work.before_promotion_s + max(0.0, work.attained_s - counted_s),
            attained_gpu_s=work.before_promotion_gpu_s + max(0.0, work.attained_gpu_s - counted_gpu_s),
            before_promotion_s=work.before_promotion_s,
            before_promotion_gpu_s=work.before_promotion_gpu_s,
            first_started_s=work.first_started_s if work.first_started_s < started_s else None,
        ),
        leaving=None if eviction is None else Leaving(eviction.cause, eviction.by, eviction.by_standing),
        changed=changed,
        next_place=None
        if work.goes_on_in is None
        else NextPlace(world.regions.members[work.goes_on_in[0]].region, work.goes_on_in[1]),
        guaranteed=work.guaranteed,
        preempted_s=_of_last_hour(world, work),
        cells=_cells_of(member.inventory.holding(work.key)),
    )


def _cells_of(holding: Holding | None) -> tuple[tuple[JobName, CellUse], ...]:
    return tuple(sorted(holding.cells)) if holding is not None else ()


def _of_last_hour(world: World, work: SimulatedWorkload) -> tuple[float, ...]:
    """When it was asked to leave for others; as many times as the rule of evictions looks at."""
    return tuple(time_s for time_s in work.preempted_s if time_s + HOUR_S > world.clock.now())
