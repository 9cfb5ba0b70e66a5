"""One run: a service, clients, the faults of the schedule one wave after the other, and the checks at the end."""

from __future__ import annotations

import os
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from domain.fleet import Fleet
from services.configuration import Configuration, LeaseConfiguration
from services.global_scheduler.disk_room import DiskSettings
from services.runtime.tier_place import TierProcesses
from tests.chaos.driver import closing as ending
from tests.chaos.driver.closing import Closing
from tests.chaos.driver.crew import CrewProcess
from tests.chaos.driver.faults import KINDS, FaultKind, World
from tests.chaos.driver.history import read_history
from tests.chaos.driver.private_world import mount_disk, shared_memory_left
from tests.chaos.driver.recovery import NotRecovered, Probes, until_recovered
from tests.chaos.driver.schedule import Planned, draw
from tests.chaos.driver.set_clock import SetClock
from tests.chaos.driver.targets import NoTarget
from tests.chaos.driver.workloads import CLOCK_SPEED, FLEET, SMALL_FLEET, TENANTS, Witness
from tests.live.real_service import RealService, real_service

_DISK_MIB = 3_072
_RESERVE_MIB = 64.0
_STOP_AFTER_REAL_S = 12.0
_GRACE_REAL_S = 4.0
_LEASE_REAL_S = 3.0
_FIND_AGAIN_REAL_S = 20.0
_FIND_INTERVAL_REAL_S = 0.5

CONFIGURATION = Configuration(
    lease=LeaseConfiguration(tasks_stop_after_real_s=_STOP_AFTER_REAL_S, lost_grace_real_s=_GRACE_REAL_S),
    disk=DiskSettings(reserve_mib=_RESERVE_MIB),
)


@dataclass(frozen=True, slots=True)
class Options:
    """Of a run. `seconds`: no wave begins after so long."""

    seed: int
    faults: int
    per_s: float
    seconds: float
    is_private: bool
    kinds: Sequence[str] = ()
    """By name; none: all that are possible here."""
    tiers: TierProcesses = TierProcesses.SEPARATE
    standby: bool = False
    """Whether a second process of each tier stands by."""


@dataclass
class Injected:
    """A fault that happened. Times in seconds; `at_s` since the run began."""

    kind: str
    to: str
    at_s: float
    lasted_s: float
    recovery_s: float
    alone: bool


@dataclass
class Result:
    """Of a run."""

    seed: int
    faults: list[Injected] = field(default_factory=list)
    passed_over: dict[str, int] = field(default_factory=dict)
    """Faults of the schedule that found nothing to be done to, by kind."""
    left_out: list[str] = field(default_factory=list)
    """Kinds that are not possible here."""
    seconds: float = 0.0
    loads: list[float] = field(default_factory=list)
    """The machine's load average before each wave: how busy it was with this run and whatever else."""
    closing: Closing = field(default_factory=Closing)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Run:
    """To be used once."""

    def __init__(self, options: Options, folder: Path) -> None:
        """`folder`: for what outlives the service; kept."""
        self._options = options
        self._folder = folder
        self._result = Result(options.seed)
        self._lock = threading.Lock()
        self._began_s = time.monotonic()

    def run(self) -> Result:
        """Returns what happened, with whatever was found wrong."""
        options, closing = self._options, self._result.closing
        self._folder.mkdir(parents=True, exist_ok=True)
        clock = SetClock(self._folder / "clock")
        clock.begin()
        disk = self._disk()
        witness = Witness(self._folder / "witness")
        witness.begin()
        try:
            with real_service(
                self._fleet, TENANTS, CLOCK_SPEED, CONFIGURATION, options.tiers, standby=options.standby
            ) as service:
                address, log = service.client.address, self._folder / "clients.log"
                crew = CrewProcess(address, self._folder / "history", witness, options.seed, options.per_s, log)
                world = World(service, crew, clock, disk, options.is_private, self._lost_after_real_s)
                crew.start()
                try:
                    probes = Probes(world)
                    self._waves(world, probes)
                    crew.end()
                    self._close(service, witness, probes)
                finally:
                    crew.abandon()
        except Exception as error:  # noqa: BLE001 - whatever broke the run, what it has found is written down
            closing.problems.append("".join(traceback.format_exception(error))[-4_000:])
        if options.is_private:
            left = shared_memory_left()
            closing.require(not left, f"shared memory is left: {left[:5]}")
        self._result.seconds = time.monotonic() - self._began_s
        return self._result

    @property
    def _fleet(self) -> Fleet:
        return FLEET if self._options.tiers is TierProcesses.SEPARATE else SMALL_FLEET

    @property
    def _lost_after_real_s(self) -> float:
        return _LEASE_REAL_S + _STOP_AFTER_REAL_S + _GRACE_REAL_S + 1.0

    def _disk(self) -> Path | None:
        """A small disk under the homes that are made from now on, where one can be had."""
        if not self._options.is_private:
            return None
        disk = Path(tempfile.mkdtemp(prefix="chaos-"))
        disk.chmod(0o755)
        mount_disk(disk, _DISK_MIB)
        tempfile.tempdir = str(disk)
        return disk

    def _kinds(self, world: World) -> list[FaultKind]:
        has = {"": True, "network": world.is_private, "disk": world.disk is not None}
        wanted = [kind for kind in KINDS if not self._options.kinds or kind.name in self._options.kinds]
        self._result.left_out = [kind.name for kind in wanted if not has[kind.needs]]
        return [kind for kind in wanted if has[kind.needs]]

    def _waves(self, world: World, probes: Probes) -> None:
        rng = np.random.default_rng(self._options.seed)
        until_recovered(world, probes.begin(is_real=True))
        for wave in draw(self._kinds(world), self._options.faults, rng):
            if time.monotonic() - self._began_s > self._options.seconds:
                break
            self._result.loads.append(round(os.getloadavg()[0], 2))
            threads = [_Injecting(self, world, probes, one, alone=len(wave) == 1) for one in wave]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for thread in threads:
                if thread.broke is not None:
                    raise thread.broke

    def inject(self, world: World, probes: Probes, planned: Planned, *, alone: bool) -> None:
        """One fault, from the beginning to the recovery. Raises NotRecovered."""
        kind = planned.kind
        time.sleep(planned.after_s)
        found = self._find_and_inject(world, planned)
        if found is None:
            with self._lock:
                self._result.passed_over[kind.name] = self._result.passed_over.get(kind.name, 0) + 1
            return
        to, began_s = found
        lasted_s = time.monotonic() - began_s
        is_real = kind.is_heavy or "task" in kind.name or "ray" in kind.name
        try:
            until_recovered(world, probes.begin(is_real=is_real))
        except NotRecovered as error:
            raise NotRecovered(f"after '{kind.name}' ({to}): {error}") from error
        finally:
            recovery_s = time.monotonic() - began_s
            injected = Injected(kind.name, to, began_s - self._began_s, lasted_s, recovery_s, alone)
            with self._lock:
                self._result.faults.append(injected)
                number = len(self._result.faults)
            print(f"{injected.at_s:7.1f} s  {number:3}  {kind.name} ({to}): {recovery_s:.1f} s", flush=True)

    def _find_and_inject(self, world: World, planned: Planned) -> tuple[str, float] | None:
        """To what it was done, and when it began; None when there was nothing of the kind for a while."""
        until = time.monotonic() + _FIND_AGAIN_REAL_S
        rng = np.random.default_rng(planned.seed)
        while time.monotonic() < until:
            began_s = time.monotonic()
            try:
                return planned.kind.inject(world, rng), began_s
            except (NoTarget, psutil.NoSuchProcess):
                time.sleep(_FIND_INTERVAL_REAL_S)
        return None

    def _close(self, service: RealService, witness: Witness, probes: Probes) -> None:
        closing = self._result.closing
        history = read_history(self._folder / "history")
        acknowledged = ending.acknowledged_in(history) | set(probes.submitted)
        events = ending.until_all_ended(service, acknowledged)
        ending.check_events(closing, service, events, acknowledged)
        ending.check_history(closing, history)
        ending.check_tasks(closing, witness)
        ending.check_nothing_runs(closing, service)


class _Injecting(threading.Thread):
    def __init__(self, run: Run, world: World, probes: Probes, planned: Planned, *, alone: bool) -> None:
        super().__init__(daemon=True)
        self.broke: BaseException | None = None
        self._all = (run, world, probes, planned)
        self._alone = alone

    def run(self) -> None:
        run, world, probes, planned = self._all
        try:
            run.inject(world, probes, planned, alone=self._alone)
        except BaseException as error:  # noqa: BLE001 - it is raised where the run waits for it
            self.broke = error
