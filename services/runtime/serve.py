"""`topmast serve`: one tier as this very process, for containers and service managers."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

from formats.problems import listed
from services.database import fleet_store
from services.database.engine import Database
from services.database.migrations_runner import require_tables
from services.execution.task_user import task_user
from services.log_output import configure_logging
from services.oom_score import SERVICE_SCORE, lower_own_score
from services.runtime.executor_kind import ExecutorKind
from services.runtime.kernels import compile_kernels
from services.runtime.tier_place import TierKind
from services.runtime.tier_process import TierRequest, own_token_path, run_until
from services.security.outgoing_token import TokenFile
from services.security.secret_files import keep_files_private
from services.security.settings import check_loopback
from services.tiers.loop_watchdog import WatchedEventLoop

_NAMED = 20


def serve(request: TierRequest) -> None:
    """Runs the tier until SIGTERM or SIGINT; logs to standard error."""
    if request.kind is TierKind.CLUSTER and request.executor is ExecutorKind.RAY:
        request = _with_root_settled(request)
    keep_files_private()
    _require_token(request)
    configure_logging()
    lower_own_score(SERVICE_SCORE)
    require_tables(request.database_url)
    asyncio.run(_require_in_fleet(request))
    if request.kind is not TierKind.CLUSTER:
        compile_kernels()  # before there is a lease that could be lost over it
    elif request.executor is ExecutorKind.RAY:
        from services.runtime.code_on_ray import join_ray

        join_ray()
    with asyncio.Runner(loop_factory=WatchedEventLoop) as runner:
        runner.run(_serve(request))


def _with_root_settled(request: TierRequest) -> TierRequest:
    """Here nobody sits at the machine and has typed it: tasks run as root only where that is configured. Raises UserImpossible where they
    would on this machine; on others their runners refuse."""
    tasks = request.configuration.tasks
    if tasks.allow_root is None:
        tasks = tasks.model_copy(update={"allow_root": False})
    task_user(tasks.settings())
    return replace(request, configuration=request.configuration.model_copy(update={"tasks": tasks}))


class NoTierToken(Exception):
    """The tier could call no other one; the message says how it gets a token."""


def _require_token(request: TierRequest) -> None:
    """Raises NoTierToken where this tier calls others and has nothing to prove by who it is, and AuthenticationNeeded where it would
    ask nobody although others can reach it. A cluster manager calls no other tier."""
    if not request.configuration.security.authentication:
        check_loopback(request.listen)
    elif request.kind is not TierKind.CLUSTER and TokenFile(own_token_path(request)).token() is None:
        raise NoTierToken(
            f"there is no token in {own_token_path(request)}, by which the other tiers would know this one: make one with"
            f" 'topmast token create --role tier --name tiers --file {own_token_path(request)}', or name its file with"
            " --tier-token-file or security.tier_token_file"
        )


class NotInFleet(Exception):
    """The fleet has no such region or cluster: there would be nothing to serve; the message says which there are."""


async def _require_in_fleet(request: TierRequest) -> None:
    """Raises NotInFleet. Before any fleet is applied everything may be in it: then the tier waits for that."""
    if request.region is None:
        return
    async with Database(request.database_url) as database:
        fleet = await database.run(fleet_store.load_outline, give_up_after_s=float("inf"))
    if not fleet:
        return
    if request.region not in fleet:
        raise NotInFleet(f"the fleet has no region {request.region}; it has {listed(sorted(fleet), _NAMED)}")
    if request.cluster is not None and request.cluster not in fleet[request.region]:
        of_region = listed(sorted(fleet[request.region]), _NAMED) or "none"
        others = [region for region, clusters in fleet.items() if request.cluster in clusters]
        where = f"; {request.cluster} is in region {others[0]}" if others else ""
        raise NotInFleet(f"region {request.region} has no cluster {request.cluster}; its clusters: {of_region}{where}")


async def _serve(request: TierRequest) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run_until(request, lambda address: None, stop)
