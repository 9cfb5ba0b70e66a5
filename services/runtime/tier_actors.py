"""Tiers as Ray actors, each in a process of its own, which Ray starts again when it dies. Ray must run in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import structlog

from services.configuration import Configuration
from services.runtime.executor_kind import ExecutorKind
from services.runtime.tier_actor import TierActor, actor_name
from services.runtime.tier_messages import Surroundings
from services.runtime.tier_place import TierPlace
from services.runtime.tier_process import TierRequest
from topmast_server.processes import module_command

_TIER_STOP_REAL_S = 10.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Started:
    request: TierRequest
    handle: Any
    """Ray's handle: it has no useful type."""


class TierActors:
    """The actors of all tiers; what there is of them already in a Ray of others is found again."""

    def __init__(self, home: Path, configuration: Configuration, executor: ExecutorKind, group: str = "") -> None:
        """`group` comes before their names: of each tier there may be several."""
        self._group = group
        self._home = home
        self._configuration = configuration
        self._executor = executor
        self._surroundings: Surroundings | None = None
        self._tiers: dict[str, _Started] = {}
        self._compiling: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        """Has everything compiled, so that no tier is busy with it."""
        self._compiling = asyncio.create_task(_compile_kernels())

    async def until_prepared(self) -> None:
        if self._compiling is not None:
            await self._compiling

    def surround(self, surroundings: Surroundings) -> None:
        """The database is there now, and Ray in this process."""
        self._surroundings = surroundings

    def start(self, places: Sequence[TierPlace]) -> None:
        """Starts the actors of these places that are not there yet."""
        for place in places:
            if place.name not in self._tiers:
                request = self._request(place)
                handle = (
                    ray.remote(TierActor)
                    .options(
                        name=actor_name(request, self._group),
                        lifetime="detached",
                        get_if_exists=True,
                        num_cpus=0,
                        max_restarts=-1,
                        max_task_retries=0,
                    )
                    .remote(request, self._group)
                )
                self._tiers[place.name] = _Started(request, handle)

    async def until_listening(self, patience_real_s: float) -> dict[str, str]:
        """Waits until all tiers listen; returns their addresses by name."""
        return await asyncio.to_thread(self._addresses, patience_real_s)

    async def end(self) -> None:
        """Ends all tiers in order, and kills what does not end in time."""
        if self._compiling is not None:
            self._compiling.cancel()
        if self._tiers:
            await asyncio.to_thread(self._end)

    def _request(self, place: TierPlace) -> TierRequest:
        if self._surroundings is None:
            raise RuntimeError("a tier needs a database")
        return TierRequest(
            kind=place.kind,
            listen=place.listen,
            region=place.region,
            cluster=place.cluster,
            database_url=self._surroundings.database_url,
            home=self._home,
            configuration=self._configuration,
            executor=self._executor,
        )

    def _addresses(self, patience_real_s: float) -> dict[str, str]:
        names = list(self._tiers)
        addresses: list[str] = ray.get([self._tiers[name].handle.address.remote(patience_real_s) for name in names])
        return dict(zip(names, addresses, strict=True))

    def _end(self) -> None:
        stopping = {name: started.handle.stop.remote() for name, started in self._tiers.items()}
        # They stop side by side, so that all of them together have this time.
        ray.wait(list(stopping.values()), num_returns=len(stopping), timeout=_TIER_STOP_REAL_S)
        for name, stopped in stopping.items():
            try:
                ray.get(stopped, timeout=0)
            except ray.exceptions.RayError as error:
                # It was being started again, or hangs: nothing is lost by killing it.
                _log.warning("a tier did not stop in order", tier=name, error=str(error))
        for started in self._tiers.values():
            ray.kill(started.handle)


async def _compile_kernels() -> None:
    """In a process of its own: the host has no use for the compiler."""
    process = await asyncio.create_subprocess_exec(*module_command("services.runtime.kernels"))
    try:
        if await process.wait() != 0:
            raise RuntimeError("what decides cannot be compiled; the log of the host says why")
    except asyncio.CancelledError:
        process.kill()
        raise
