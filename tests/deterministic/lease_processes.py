"""Processes that want one lease, and work under it: the real keeper and its renewal, on loops of the simulation."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import psycopg
import pytest

from services.database import lease_store
from services.database.lease_store import Lease, LeaseLost
from services.tiers import lease_keeper, lease_renewal, standing_by
from services.tiers.lease_keeper import LeaseKeeper
from tests.deterministic.lease_table import SimulatedDatabase, SimulatedServer, Weather
from tests.deterministic.simulation import SimulatedLoop, SimulatedProcess, SimulatedWorld

NAME = "regional/east"
DURATION_S = 3.0
SILENCE_S = 10.0
_WRITE_EVERY_S = 0.4


class Quiet:
    """A log that nobody reads."""

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_arguments, **_values: None


@contextmanager
def simulated_time(monkeypatch: pytest.MonkeyPatch, world: SimulatedWorld, server: SimulatedServer) -> Iterator[None]:
    """Keeper and renewal have the simulated clock, threads and connections for as long as this lasts."""
    clock = SimpleNamespace(monotonic=lambda: world.now_s)
    with monkeypatch.context() as patched:
        for module in (lease_keeper, lease_renewal):
            patched.setattr(module, "time", clock)
            patched.setattr(module, "_log", Quiet())
        patched.setattr(standing_by, "_log", Quiet())
        patched.setattr(lease_renewal, "connect", server.connect)
        patched.setattr(lease_keeper, "threading", SimpleNamespace(Thread=SimulatedThread))
        yield


class SimulatedThread:
    """Runs a renewal on a loop of its own, as its thread would."""

    def __init__(self, *, target: Any, args: tuple[Any, ...], **_names: Any) -> None:
        self._renewal, (self._tell,) = target.__self__, args

    def start(self) -> None:
        starter = asyncio.get_running_loop()
        assert isinstance(starter, SimulatedLoop)
        process = starter.process
        assert isinstance(process, SimulatedProcess)
        loop, renewing = process.start_loop(self._renewal._run())
        renewing.add_done_callback(lambda task: self._told(process, loop, task))

    def _told(self, process: SimulatedProcess, loop: SimulatedLoop, task: asyncio.Task[Any]) -> None:
        process.end_loop(loop)
        end = lease_renewal.RenewalEnd.STOPPED if task.cancelled() else task.result()
        self._tell(end)


@dataclass(eq=False, kw_only=True)
class Contender(SimulatedProcess):
    """It works whenever it has the lease, and stops when it is told that it has lost it."""

    server: SimulatedServer
    keeper: LeaseKeeper = field(init=False)
    database: SimulatedDatabase = field(init=False)
    gives_back: bool = False
    """It is to end in order: its lease is given back."""

    def start(self) -> None:
        self.database = SimulatedDatabase(self.server)
        self.keeper = LeaseKeeper(
            self.database,  # type: ignore[arg-type]  # what leases need of it
            NAME,
            self.name,
            "127.0.0.1:1",
            DURATION_S,
            silence_real_s=SILENCE_S,
        )
        self.start_loop(self._run())

    @property
    def is_certain(self) -> bool:
        """What the process would find if it looked at this moment."""
        return self.world.now_s < self.keeper.certain_until_real_s()

    @property
    def _ends(self) -> bool:
        return self.gives_back

    async def _run(self) -> None:
        while True:
            lease = await self.keeper.wait_until_held()
            work = asyncio.ensure_future(self._work(lease))
            keeping = asyncio.ensure_future(self.keeper.keep(lease))
            await asyncio.wait({work, keeping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (work, keeping):
                task.cancel()
            await asyncio.wait({work, keeping})
            if self._ends:
                await self.keeper.release(lease)
                return

    async def _work(self, lease: Lease) -> None:
        """Writes in the name of the lease, until it is told that it may not."""
        while not self._ends:
            await asyncio.sleep(_WRITE_EVERY_S)
            try:
                connection = await self.server.connect("")
                try:
                    await lease_store.assert_held(connection, lease)  # type: ignore[arg-type]  # what it needs of one
                    connection.write(lease.token, lease.holder)
                    await connection.commit()
                finally:
                    await connection.close()
            except LeaseLost:
                return
            except psycopg.OperationalError:
                continue


@dataclass
class Struggle:
    """Two or three places of one tier, what happens to them by the seed, and what must be true all the time."""

    seed: int
    sets_clocks: bool = False
    contenders: list[Contender] = field(default_factory=list)
    _names: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.world = SimulatedWorld(np.random.default_rng([self.seed, 1]))
        self.server = SimulatedServer(self.world)

    def run(self, troubled_s: float, calm_s: float) -> None:
        """Troubles come for a while, and then none: by the end somebody works under the lease again."""
        for _ in range(int(self.rng.integers(2, 4))):
            self._begin()
        end_s = self.world.now_s + troubled_s
        while self.world.now_s < end_s:
            self._trouble()
            self.world.run(self.world.now_s + float(self.rng.exponential(2.0)), self._look)
        self.server.weather = Weather()
        self.world.run(self.world.now_s + calm_s, self._look)
        self._look_at_writes()
        recent = [write for write in self.server.writes if write[0] > self.world.now_s - 3.0]
        assert recent, f"seed {self.seed}: nobody works under the lease at the end"
        assert not self.world.broke, f"seed {self.seed}: {self.world.broke[:2]}"

    def _begin(self) -> None:
        contender = Contender(world=self.world, name=f"process-{next(self._names)}", server=self.server)
        contender.start()
        self.contenders.append(contender)

    def _trouble(self) -> None:
        """One of them, or of the database."""
        rng, now_s = self.rng, self.world.now_s
        victim = self.contenders[int(rng.integers(len(self.contenders)))]
        match int(rng.integers(10)):
            case 0 | 1:  # halted as a whole
                until_s = now_s + float(rng.uniform(0.2, 15.0))
                for loop in victim.loops:
                    loop.halted_until_s = until_s
            case 2:  # its work keeps its loop busy, and its renewal goes on
                victim.loops[0].halted_until_s = now_s + float(rng.uniform(0.2, 15.0))
            case 3 | 4:  # killed, and started again
                self.world.kill(victim.loops)
                self.server.disconnect(victim)
                self.contenders.remove(victim)
                self._begin()
            case 5:  # ends in order, and is started again
                victim.gives_back = True
                self._begin()
            case 6:
                self.server.weather = Weather(down=True)
            case 7:
                self.server.weather = Weather(latency_s=float(rng.uniform(0.05, 1.0)))
            case 8:
                self.server.weather = Weather(loss=float(rng.uniform(0.05, 0.5)))
            case _:
                self.server.weather = Weather()
        if self.sets_clocks and rng.random() < 0.1:
            self.server.ahead_s += float(rng.uniform(-5.0, 5.0))

    def _look(self) -> None:
        """No two processes are certain of the lease at one moment, whatever happened to either."""
        certain = [one.name for one in self.contenders if one.is_certain]
        if not self.sets_clocks:
            row = self.server.table.rows.get(NAME)
            assert len(certain) <= 1, f"seed {self.seed}, at {self.world.now_s:.3f} s: {certain} are certain of it"
            if certain and row is not None and row.holder:
                assert row.holder == certain[0], f"seed {self.seed}: {certain[0]} is certain, and {row.holder} has it"

    def _look_at_writes(self) -> None:
        """What was written in the name of the lease came under tokens that grow, each of one process."""
        tokens = [token for _, token, _ in self.server.writes]
        assert tokens == sorted(tokens), f"seed {self.seed}: a stale process has written"
        assert len({(token, holder) for _, token, holder in self.server.writes}) == len(set(tokens))
