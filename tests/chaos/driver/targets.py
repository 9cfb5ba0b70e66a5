"""The processes of a running service, by what they are."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

from services.database.embedded import EmbeddedLayout, supervisor_process_id
from services.database.server_processes import find_server_processes, read_postmaster_id
from services.runtime.home import HomeLayout
from services.runtime.home_state import HomeState, look_at
from services.runtime.host_lock import host_lock_holder
from services.runtime.process_identity import is_halted, lives
from tests.live.real_service import RealService, Tier
from topmast.status import Status


class NoTarget(Exception):
    """There is no such process at the moment."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Of one service. Every process is looked up when it is needed, and is this service's own."""

    service: RealService

    def state(self) -> HomeState:
        return look_at(HomeLayout(self.service.home))

    def host(self) -> psutil.Process:
        host = self.state().host
        if host is None:
            raise NoTarget("the host")
        return host

    def watcher(self) -> psutil.Process:
        return _process(host_lock_holder(HomeLayout(self.service.home).watcher_lock))

    def supervisor(self) -> psutil.Process:
        return _process(supervisor_process_id(self._database))

    def postmaster(self) -> psutil.Process:
        return _process(read_postmaster_id(self._database.data))

    def server(self) -> list[psutil.Process]:
        """All of PostgreSQL's."""
        return find_server_processes(self._database.data)

    def server_part(self, title: str) -> psutil.Process:
        """PostgreSQL's youngest process with that in its title."""
        found = [one for one in self.server() if title in " ".join(_command(one))]
        if not found:
            raise NoTarget(title)
        return found[-1]

    def part(self, name: str) -> psutil.Process:
        """What the host says of itself: `ray raylet`, `ray gcs_server`."""
        record = self.state().record
        parts = record.parts if record is not None else ()
        return _process(next((part.process_id for part in parts if part.name == name and part.up), None))

    def tier(self, tier: Tier, status: Status) -> psutil.Process:
        found = (one.process_id for one in status.tiers if (one.tier, one.name) == tier and one.alive)
        process = _process(next(found, None))
        if process.pid not in {one.pid for one in self.service.processes()}:
            raise NoTarget(f"{tier} is no process of this service")
        return process

    def ports(self, tiers: Sequence[Tier], status: Status) -> list[int]:
        """Where these tiers listen."""
        return [
            int(one.address.rpartition(":")[2])
            for one in status.tiers
            if (one.tier, one.name) in tiers and one.alive and one.address
        ]

    def tasks(self) -> list[psutil.Process]:
        """The main processes of real tasks, oldest first."""
        return [one for one in self.service.processes() if _command(one)[:2] == ["sh", "-c"]]

    def above(self, task: psutil.Process, levels: int) -> psutil.Process:
        """1: the reaper of the task, 2: its guard, 3: its runner."""
        try:
            process = task.parents()[levels - 1]
        except (psutil.NoSuchProcess, IndexError) as error:
            raise NoTarget("the task has ended") from error
        wanted = "TaskRunner" if levels == 3 else "task_reaper"
        if wanted not in " ".join(_command(process)):
            raise NoTarget(f"{process} is no {wanted}")
        return process

    def backends_of(self, process: psutil.Process) -> list[psutil.Process]:
        """PostgreSQL's processes at the other end of this one's connections."""
        servers = {one.pid: one for one in self.server()}
        peers: set[str] = set()
        ends: dict[str, int] = {}
        for line in _sockets():
            inode, peer = line[5], line[7]
            for owner in _owners(line):
                if owner == process.pid:
                    peers.add(peer)
                elif owner in servers:
                    ends[inode] = owner
        return [servers[ends[peer]] for peer in sorted(peers) if peer in ends]

    @property
    def _database(self) -> EmbeddedLayout:
        return EmbeddedLayout.of(self.service.home)


def _sockets() -> list[list[str]]:
    listed = subprocess.run(["ss", "--unix", "--processes", "--no-header"], capture_output=True, text=True, check=True)
    lines = (line.split() for line in listed.stdout.splitlines())
    return [line for line in lines if len(line) > 8]


def _owners(line: Sequence[str]) -> list[int]:
    return [int(part.partition(",")[0]) for part in " ".join(line).split("pid=")[1:]]


def _process(process_id: int | None) -> psutil.Process:
    if process_id is None or not psutil.pid_exists(process_id):
        raise NoTarget("there is no such process now")
    return psutil.Process(process_id)


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return process.cmdline()
    return []


def send(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    """To all of them that are still there."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def runs(process_id: int) -> bool:
    """Whether the process is there, and not halted."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(process_id)
        return lives(process) and not is_halted(process)
    return False
