"""Starts the making of a plan in a process of its own: as a Ray task where there is Ray, else as a child process."""

from __future__ import annotations

import asyncio
import sys

import structlog

from services.data_placement.planning import PlanRequest
from services.tiers.child_process import end_process
from topmast_server.processes import module_command

_log = structlog.get_logger(__name__)


async def run_planning(request: PlanRequest) -> None:
    """Returns when the process has ended, well or not: the plan's row says how. Cancelled, it ends the process."""
    if _on_ray():
        await _run_on_ray(request)
    else:
        await _run_as_child(request)


def _on_ray() -> bool:
    # Imported only where something else has: a service without Ray does not pay for it.
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


async def _run_on_ray(request: PlanRequest) -> None:
    import ray

    from services.data_placement.planning import make_plan

    # No CPU is asked for: those of the fleet are for its workloads. One call per process gives its memory back.
    task = ray.remote(num_cpus=0, max_calls=1, max_retries=0)(make_plan).options(name=f"data-plan-{request.plan}")
    reference = task.remote(request)
    try:
        await reference
    except asyncio.CancelledError:
        ray.cancel(reference, force=True)
        raise
    except ray.exceptions.RayError as error:
        _log.warning("the process that made a plan is gone", plan=request.plan, error=str(error))


async def _run_as_child(request: PlanRequest) -> None:
    process = await asyncio.create_subprocess_exec(
        *module_command("services.data_placement.planning"), stdin=asyncio.subprocess.PIPE
    )
    try:
        await process.communicate(request.as_json())
    except asyncio.CancelledError:
        await end_process(process)
        raise
    if process.returncode:
        _log.warning("the process that made a plan is gone", plan=request.plan, exit_code=process.returncode)
