"""The processes of a whole control plane on simulated time: the tiers as they are, on a real database and a simulated network."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

from domain.identifiers import ClusterId, RegionId
from services.cluster_manager import tier as cluster_manager_tier
from services.cluster_manager.tier import ClusterManagerTier
from services.configuration import Configuration
from services.database import connection as database_connection
from services.database import watcher
from services.database.engine import Database
from services.execution.emulated_executor import EmulatedExecutor
from services.execution.executor import AttemptOrder, AttemptPhase
from services.global_scheduler import submission
from services.global_scheduler import tier as global_scheduler_tier
from services.global_scheduler.tier import GlobalSchedulerTier
from services.regional_scheduler import tier as regional_scheduler_tier
from services.regional_scheduler.tier import RegionalSchedulerTier
from services.runtime.tier_process import Tier
from services.tiers import lease_keeper, lease_renewal, tier_channel
from services.tiers.lease_keeper import LeaseKeeper
from tests.deterministic.lease_processes import SimulatedThread
from tests.deterministic.postgres_by_turns import PostgresByTurns
from tests.deterministic.simulated_network import SimulatedNetwork
from tests.deterministic.simulation import Moment, SimulatedLoop, SimulatedProcess, SimulatedWorld

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class SimulatedClock:
    """Of the service: that of the simulation."""

    world: SimulatedWorld

    def now(self) -> float:
        return self.world.now_s

    def real_seconds(self, duration_s: float) -> float:
        return duration_s


@dataclass(frozen=True, slots=True)
class Place:
    """Where one process of a tier runs, one after the other."""

    name: str
    port: int
    region: str = ""
    cluster: str = ""

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


@dataclass(eq=False, kw_only=True)
class TierProcess(SimulatedProcess):
    """One run of a tier."""

    place: Place
    keepers: list[RecordedKeeper] = field(default_factory=list)
    executors: list[WatchedExecutor] = field(default_factory=list)

    def is_certain(self) -> bool:
        """Whether it would take the lease for its own at this moment."""
        return any(self.world.now_s < keeper.certain_until_real_s() for keeper in self.keepers)


class RecordedKeeper(LeaseKeeper):
    """Its process knows it."""

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type]  # as they came
        process = _present_process()
        process.keepers.append(self)


class WatchedExecutor(EmulatedExecutor):
    """Looks, whenever it begins an attempt, whether another one of the same workload runs."""

    control_plane: ControlPlane

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type]  # as they came
        self.process = _present_process()
        self.process.executors.append(self)

    async def execute(self, order: AttemptOrder) -> None:
        await super().execute(order)
        if self.process.is_certain():
            self.control_plane.look_at_order(self, order)

    def running(self, workload: str) -> list[int]:
        """The attempts of the workload that run here."""
        return [
            int(status.key.attempt)
            for status in self.statuses()
            if status.key.workload == workload and status.phase is AttemptPhase.RUNNING
        ]


def _present_process() -> TierProcess:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    assert isinstance(loop.process, TierProcess)
    return loop.process


@dataclass(frozen=True, slots=True)
class Interruption:
    """What happens to a process when it comes to that moment."""

    moment: Moment
    halted_s: float
    """0: it is killed, and another one starts in its place."""


@dataclass
class ControlPlane:
    """All places, which process is at each of them now, and what they have in common."""

    world: SimulatedWorld
    postgres: PostgresByTurns
    network: SimulatedNetwork
    configuration: Configuration
    home: Path
    places: tuple[Place, ...]
    present: dict[str, TierProcess] = field(default_factory=dict)
    overlaps: list[str] = field(default_factory=list)
    interruptions: dict[str, Interruption] = field(default_factory=dict)
    """By the name of the process."""
    interrupted: Counter[Moment] = field(default_factory=Counter)
    _doomed: list[TierProcess] = field(default_factory=list)
    _runs: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.postgres.reached = self.network.reached = self._reached

    def begin(self, place: Place) -> TierProcess:
        """Starts a process there; that of before is gone."""
        process = TierProcess(self.world, f"{place.name}-{next(self._runs)}", place=place)
        self.present[place.name] = process
        process.start_loop(self._run(process))
        return process

    def kill(self, place: Place) -> None:
        """With all its threads, connections and calls, wherever it stands."""
        process = self.present.pop(place.name, None)
        if process is not None:
            loops = list(process.loops)
            self.world.kill(loops)
            self.network.disconnect(loops)
            self.postgres.disconnect(loops)

    def look(self) -> None:
        """After each turn."""
        self.postgres.end_what_hangs()
        self.look_at_leases()
        while self._doomed:
            process = self._doomed.pop()
            if self.present.get(process.place.name) is process:
                self.kill(process.place)
                self.begin(process.place)

    def _reached(self, loop: SimulatedLoop, moment: Moment) -> bool:
        """Interrupts the process if that is planned for this moment; says whether it was."""
        process = loop.process
        if not isinstance(process, TierProcess) or process.loops[:1] != [loop]:
            return False
        interruption = self.interruptions.get(process.name)
        if interruption is None or interruption.moment is not moment:
            return False
        del self.interruptions[process.name]
        self.interrupted[moment] += 1
        if interruption.halted_s:
            process.halt(self.world.now_s + interruption.halted_s)
        else:
            process.halt(float("inf"))
            self._doomed.append(process)
        return True

    def look_at_leases(self) -> None:
        """No two processes of a tier are certain of its lease."""
        certain: dict[tuple[str, str], str] = {}
        for process in self.present.values():
            if process.is_certain():
                tier = process.place.region, process.place.cluster
                assert tier not in certain, f"{certain[tier]} and {process.name} have one lease at {self.world.now_s}"
                certain[tier] = process.name

    def look_at_order(self, executor: WatchedExecutor, order: AttemptOrder) -> None:
        """An attempt has begun: no other one of its workload runs where anybody is responsible for it."""
        for process in self.present.values():
            for other in process.executors[-1:]:
                if process.is_certain():
                    running = [number for number in other.running(order.key.workload) if number != order.key.attempt]
                    self.overlaps += [
                        f"{order.key.workload}: attempt {order.key.attempt} at {executor.process.name} beside {number}"
                        f" at {process.name} at {self.world.now_s}"
                        for number in running
                    ]

    async def _run(self, process: TierProcess) -> None:
        async with Database(self.postgres.url, connections=4) as database:
            tier = self._tier(process.place, database)
            port = await tier.start(process.place.address)
            try:
                await tier.run(f"{HOST}:{port}", process.name)
            finally:
                await tier.stop(2.0)

    def _tier(self, place: Place, database: Database) -> Tier:
        clock = SimulatedClock(self.world)
        if place.cluster:
            return ClusterManagerTier(
                ClusterId(place.cluster), database, clock, self.configuration, home=self.home, on_ray=False
            )
        if place.region:
            return RegionalSchedulerTier(RegionId(place.region), database, clock, self.configuration)
        return GlobalSchedulerTier(database, clock, self.configuration, home=self.home)


@contextmanager
def simulated_control_plane(
    monkeypatch: pytest.MonkeyPatch, control_plane: ControlPlane, rng: np.random.Generator
) -> Iterator[None]:
    """All that tiers have of the world outside is that of the simulation for as long as this lasts."""
    world, postgres, network = control_plane.world, control_plane.postgres, control_plane.network
    executor = type("Executor", (WatchedExecutor,), {"control_plane": control_plane})
    drawn: Callable[..., float] = rng.uniform
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: world.now_s)
        patched.setattr(time, "time", lambda: world.now_s)
        patched.setattr(time, "time_ns", lambda: int(world.now_s * 1e9))
        patched.setattr(random, "uniform", drawn)
        # Of names of workloads, by which equals are put in order.
        patched.setattr(submission, "secrets", SimpleNamespace(randbits=lambda bits: int(rng.integers(2**bits))))
        patched.setattr(lease_keeper, "threading", SimpleNamespace(Thread=SimulatedThread))
        for module in (database_connection, watcher, lease_renewal):
            patched.setattr(module, "connect", postgres.connect)
        patched.setattr(grpc.aio, "server", network.server)
        patched.setattr(grpc.aio, "insecure_channel", network.channel)
        patched.setattr(tier_channel, "own_token_file", lambda: None)
        for module in (cluster_manager_tier, global_scheduler_tier, regional_scheduler_tier):
            patched.setattr(module, "LeaseKeeper", RecordedKeeper)
        patched.setattr(cluster_manager_tier, "EmulatedExecutor", executor)
        # It looks at all objects of this process, which is not one of the simulation.
        patched.setattr(regional_scheduler_tier, "collect_everything", lambda: None)
        try:
            yield
        finally:
            world.tidy()
            postgres.close()
