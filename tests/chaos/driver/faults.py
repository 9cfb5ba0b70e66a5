"""The kinds of faults, and how each is injected: into what, how much of the service must answer first, how long it lasts.

An injection returns when the harm is done, or over where it lasts; what it started in a process of this run has ended then.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from tests.chaos.driver import network
from tests.chaos.driver.crew import CrewProcess
from tests.chaos.driver.set_clock import SetClock
from tests.chaos.driver.targets import NoTarget, Targets, send
from tests.live.real_service import RealService, Tier
from topmast import Client, TopmastError
from topmast.status import Status

_HALT_REAL_S = (2.0, 7.0)
"""On both sides of a lease's duration (3 s)."""
_SLOW_DELAY_S = 0.15
_LOOK_REAL_S = 0.1
_STUTTER_HALTED_REAL_S = 0.08
_STUTTER_RUNNING_REAL_S = 0.02


@dataclass
class World:
    """What faults are injected into."""

    service: RealService
    crew: CrewProcess
    clock: SetClock
    disk: Path | None
    """A disk of the home's own, where there is one."""
    is_private: bool
    """Whether the network is this run's own."""
    lost_after_real_s: float
    """So long after its lease has ended a cluster can be declared lost."""
    targets: Targets = field(init=False)

    def __post_init__(self) -> None:
        self.targets = Targets(self.service)

    def status(self) -> Status:
        """At once; raises NoTarget when nobody answers."""
        with Client(self.service.client.address, attempts=1, timeout_s=3.0) as hasty:
            try:
                return hasty.status()
            except TopmastError as error:
                raise NoTarget("nobody says where the tiers are") from error

    def regions(self) -> list[str]:
        return [str(region.region) for region in self.service.fleet.regions]

    def tiers_of(self, region: str) -> list[Tier]:
        """The scheduler of the region, and its cluster managers."""
        (found,) = (one for one in self.service.fleet.regions if one.region == region)
        return [("regional", region), *(("cluster", str(one.cluster)) for one in found.clusters)]

    def tiers(self) -> list[Tier]:
        return [("global", ""), *(tier for region in self.regions() for tier in self.tiers_of(region))]


Injection = Callable[[World, np.random.Generator], str]
"""Does it; returns to what it was done."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind. `weight`: how often beside others. `needs`: network or disk of the run's own."""

    name: str
    inject: Injection
    weight: float = 1.0
    needs: str = ""
    is_heavy: bool = False
    """Whether Ray and the tiers begin anew after it."""


def _kill(find: Callable[[World, np.random.Generator], psutil.Process]) -> Injection:
    def inject(world: World, rng: np.random.Generator) -> str:
        process = find(world, rng)
        send([process], signal.SIGKILL)
        return str(process.pid)

    return inject


def _halt(find: Callable[[World, np.random.Generator], psutil.Process]) -> Injection:
    def inject(world: World, rng: np.random.Generator) -> str:
        process = find(world, rng)
        _halted([process], float(rng.uniform(*_HALT_REAL_S)))
        return str(process.pid)

    return inject


def _halted(processes: Sequence[psutil.Process], seconds: float) -> None:
    send(processes, signal.SIGSTOP)
    try:
        time.sleep(seconds)  # the length of the pause is the matter here
    finally:
        send(processes, signal.SIGCONT)


def _tier(kind: str) -> Callable[[World, np.random.Generator], psutil.Process]:
    def find(world: World, rng: np.random.Generator) -> psutil.Process:
        tiers = [tier for tier in world.tiers() if tier[0] == kind]
        return world.targets.tier(tiers[int(rng.integers(len(tiers)))], world.status())

    return find


def _task(world: World, rng: np.random.Generator) -> psutil.Process:
    tasks = world.targets.tasks()
    if not tasks:
        raise NoTarget("no task runs")
    return tasks[int(rng.integers(len(tasks)))]


def _above_task(levels: int) -> Callable[[World, np.random.Generator], psutil.Process]:
    return lambda world, rng: world.targets.above(_task(world, rng), levels)


def _kill_runner_and_reaper(world: World, rng: np.random.Generator) -> str:
    task = _task(world, rng)
    above = [world.targets.above(task, levels) for levels in (3, 1)]
    send(above, signal.SIGKILL)
    return " ".join(str(one.pid) for one in above)


def _halt_database(world: World, rng: np.random.Generator) -> str:
    _halted(world.targets.server(), float(rng.uniform(*_HALT_REAL_S)))
    return "all its processes"


def _slow_database(world: World, rng: np.random.Generator) -> str:
    """It runs for a fifth of the time."""
    until = time.monotonic() + float(rng.uniform(3.0, 6.0))
    while time.monotonic() < until:
        _halted(world.targets.server(), _STUTTER_HALTED_REAL_S)
        time.sleep(_STUTTER_RUNNING_REAL_S)
    return "a fifth of its speed"


def _cut_from_database(world: World, rng: np.random.Generator) -> str:
    """What a tier sends to the database is not answered, however often it connects."""
    tiers = world.tiers()
    process = world.targets.tier(tiers[int(rng.integers(len(tiers)))], world.status())
    halted: dict[int, psutil.Process] = {}
    until = time.monotonic() + float(rng.uniform(3.0, 6.0))
    try:
        while time.monotonic() < until:
            ends = world.targets.backends_of(process)
            send(ends, signal.SIGSTOP)
            halted.update({one.pid: one for one in ends})
            time.sleep(_LOOK_REAL_S)
    finally:
        send(list(halted.values()), signal.SIGCONT)
    return f"{process.pid}, {len(halted)} connections"


def _supervisor_and_server(world: World, _rng: np.random.Generator) -> str:
    both = [world.targets.supervisor(), world.targets.postmaster()]
    send(both, signal.SIGKILL)
    return " ".join(str(one.pid) for one in both)


def _cut_connections(world: World, rng: np.random.Generator) -> str:
    tiers = world.tiers()
    tier = tiers[int(rng.integers(len(tiers)))]
    network.cut(world.targets.ports([tier], world.status()))
    return " ".join(tier)


def _partition_region(world: World, rng: np.random.Generator) -> str:
    regions = world.regions()
    region = regions[int(rng.integers(len(regions)))]
    with network.unreachable(world.targets.ports(world.tiers_of(region), world.status())):
        time.sleep(float(rng.uniform(4.0, 9.0)))
    return region


def _slow_network(world: World, rng: np.random.Generator) -> str:
    with network.slow(world.targets.ports(world.tiers(), world.status()), _SLOW_DELAY_S):
        time.sleep(float(rng.uniform(4.0, 8.0)))
    return "all tiers"


def _clock_forward(world: World, rng: np.random.Generator) -> str:
    by_s = float(rng.uniform(2.5, 20.0))
    world.clock.jump(by_s)
    return f"{by_s:.0f} s"


def _clock_back(world: World, rng: np.random.Generator) -> str:
    by_s = float(rng.uniform(2.5, 10.0))
    world.clock.jump(-by_s)
    return f"{by_s:.0f} s"


def _full_disk(left_bytes: int) -> Injection:
    def inject(world: World, rng: np.random.Generator) -> str:
        if world.disk is None:
            raise NoTarget("the home has no disk of its own")
        filler = world.disk / "filler"
        try:
            _fill(world.disk, filler, left_bytes)
            time.sleep(float(rng.uniform(3.0, 6.0)))
        finally:
            filler.unlink(missing_ok=True)
        return f"{left_bytes} bytes left"

    return inject


def _fill(disk: Path, filler: Path, left_bytes: int) -> None:
    with filler.open("wb") as file:
        room = os.statvfs(disk)
        wanted = room.f_bavail * room.f_frsize - left_bytes
        with suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(wanted, 1))


def _lost_cluster(world: World, rng: np.random.Generator) -> str:
    clusters = [tier for tier in world.tiers() if tier[0] == "cluster"]
    (_, cluster) = tier = clusters[int(rng.integers(len(clusters)))]
    (region,) = (name for name in world.regions() if tier in world.tiers_of(name))
    _lost(world, [tier], region, cluster)
    return cluster


def _lost_region(world: World, rng: np.random.Generator) -> str:
    regions = world.regions()
    region = regions[int(rng.integers(len(regions)))]
    _lost(world, world.tiers_of(region), region, "")
    return region


def _lost(world: World, tiers: Sequence[Tier], region: str, cluster: str) -> None:
    """Its processes are halted until its tasks have stopped by themselves; it is declared lost; and then it is back."""
    status = world.status()
    processes = [world.targets.tier(tier, status) for tier in tiers]
    send(processes, signal.SIGSTOP)
    try:
        time.sleep(world.lost_after_real_s)
        with suppress(TopmastError):
            # It may count as lost by itself already; another fault of the moment may have put others in the place of these processes, or
            # keep the global scheduler from answering.
            world.service.client.declare_lost(region, cluster)
        time.sleep(1.0)
    finally:
        send(processes, signal.SIGCONT)


def _kill_clients(world: World, _rng: np.random.Generator) -> str:
    return world.crew.kill()


_NETWORK, _DISK = "network", "disk"

KINDS: tuple[FaultKind, ...] = (
    FaultKind("kill the global scheduler", _kill(_tier("global")), 2.0),
    FaultKind("kill a regional scheduler", _kill(_tier("regional")), 2.0),
    FaultKind("kill a cluster manager", _kill(_tier("cluster")), 2.0),
    FaultKind("halt the global scheduler", _halt(_tier("global"))),
    FaultKind("halt a regional scheduler", _halt(_tier("regional"))),
    FaultKind("halt a cluster manager", _halt(_tier("cluster"))),
    FaultKind("kill the postmaster", _kill(lambda world, _: world.targets.postmaster()), 1.5),
    FaultKind("kill a backend", _kill(lambda world, _: world.targets.server_part("postgres: postgres topmast")), 1.5),
    FaultKind("kill the writer of the database's log", _kill(lambda world, _: world.targets.server_part("walwriter"))),
    FaultKind("kill the database's supervisor", _kill(lambda world, _: world.targets.supervisor())),
    FaultKind("kill the supervisor and the postmaster", _supervisor_and_server),
    FaultKind("halt the database's supervisor", _halt(lambda world, _: world.targets.supervisor()), 0.5),
    FaultKind("halt the database", _halt_database),
    FaultKind("slow database", _slow_database),
    FaultKind("cut a tier off from the database", _cut_from_database),
    FaultKind("kill the watcher", _kill(lambda world, _: world.targets.watcher())),
    FaultKind("halt the watcher", _halt(lambda world, _: world.targets.watcher()), 0.5),
    FaultKind("kill the host", _kill(lambda world, _: world.targets.host()), 0.4, is_heavy=True),
    FaultKind("halt the host", _halt(lambda world, _: world.targets.host()), 0.7),
    FaultKind("kill raylet", _kill(lambda world, _: world.targets.part("ray raylet")), 0.4, is_heavy=True),
    FaultKind("kill the GCS", _kill(lambda world, _: world.targets.part("ray gcs_server")), 0.4, is_heavy=True),
    FaultKind("halt raylet", _halt(lambda world, _: world.targets.part("ray raylet")), 0.7),
    FaultKind("halt the GCS", _halt(lambda world, _: world.targets.part("ray gcs_server")), 0.7),
    FaultKind("kill a task", _kill(_task), 1.5),
    FaultKind("kill the reaper of a task", _kill(_above_task(1)), 1.5),
    FaultKind("kill the guard of a task", _kill(_above_task(2)), 1.5),
    FaultKind("kill the runner of a task", _kill(_above_task(3)), 1.5),
    FaultKind("kill runner and reaper of a task", _kill_runner_and_reaper, 1.5),
    FaultKind("halt a task", _halt(_task), 0.5),
    FaultKind("halt the reaper of a task", _halt(_above_task(1)), 0.5),
    FaultKind("halt the guard of a task", _halt(_above_task(2)), 0.5),
    FaultKind("halt the runner of a task", _halt(_above_task(3)), 0.5),
    FaultKind("cut the connections of a tier", _cut_connections, 2.0, _NETWORK),
    FaultKind("partition of a region", _partition_region, 1.5, _NETWORK),
    FaultKind("slow network", _slow_network, 1.0, _NETWORK),
    FaultKind("clock set forward", _clock_forward, 1.0),
    FaultKind("clock set back", _clock_back, 0.7),
    FaultKind("disk nearly full", _full_disk(32 * 2**20), 1.0, _DISK),
    FaultKind("disk full to the last byte", _full_disk(0), 0.7, _DISK),
    FaultKind("lost cluster", _lost_cluster, 0.2),
    FaultKind("lost region", _lost_region, 0.2),
    FaultKind("kill the clients", _kill_clients, 2.0),
)
