"""How attempts end in a simulation for reasons that lie in their workloads: when, and what the run keeps of it."""

from __future__ import annotations

from cluster_manager.attempt_run.actions import RecordEnd
from domain.life_cycle import State
from simulator.engine.event_queue import Happens
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World


def await_end(world: World, work: SimulatedWorkload, now: float) -> None:
    """What the attempt that runs comes to if nothing comes between: all its work is done, or its time limit is reached."""
    limit_s = work.limit_reached_s
    if work.done_s <= limit_s:
        world.events.add(max(now, work.done_s), Happens.COMPLETION, work.index, work.token)
    else:
        world.events.add(max(now, limit_s), Happens.TIME_LIMIT, work.index, work.token)


def end_unfinished(world: World, work: SimulatedWorkload, end: RecordEnd) -> None:
    """Its workload is over and has not completed: it failed, or a run that begins with a snapshot found it on its way out."""
    if end.next_state is State.FAILED:
        work.progress = end.checkpoint_progress
        world.recorder.failed(work, end)
        if world.log is not None:
            world.log.failed(work, end)
    else:
        work.progress = end.progress
        world.recorder.cancelled(work, end)
        if world.log is not None:
            world.log.cancelled(work, end)
    world.ended += 1
    del world.by_name[work.workload.workload]
