"""Cluster managers and regional schedulers as processes of their own beside a service in this one: they can be killed, or paused."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from services.database import lease_store
from services.database.lease_store import LeaseRecord
from services.database.server_address import URL_VARIABLE
from tests.live.running import PATIENCE_REAL_S, LiveRun

_PROGRAM = "from services.command_line.main import main; main()"


@dataclass
class Processes:
    """Tiers that left the service's process, by their names."""

    run: LiveRun
    home: Path
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    async def take_over(self, tier: str) -> None:
        """The tier runs as a process of its own from now on; returns when it holds the lease."""
        kind, name = tier.split("/")
        await self.run.service.stop(tier)
        arguments = ["serve", kind, "--home", str(self.home), "--config", str(self._configuration())]
        if kind == "cluster":
            region = next(
                region.region
                for region in self.run.service.fleet.regions
                if any(cluster.cluster == name for cluster in region.clusters)
            )
            arguments += ["--region", region, "--cluster", name, "--executor", "emulated"]
        else:
            arguments += ["--region", name]
        self._running[tier] = process = self._started(arguments)
        async with asyncio.timeout(PATIENCE_REAL_S):
            while (record := await self.lease(tier)) is None or (record.process_id, record.live) != (process.pid, True):
                assert process.poll() is None, f"{tier} ended"
                await asyncio.sleep(0.05)

    def _started(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *arguments],
            env={**os.environ, URL_VARIABLE: self.run.service.database_url},
            stdin=subprocess.DEVNULL,
        )

    async def lease(self, tier: str) -> LeaseRecord | None:
        """What is known of the tier's lease."""
        records = await self.run.database.run(lease_store.list_leases)
        return next((record for record in records if record.name == tier), None)

    def signal(self, tier: str, number: signal.Signals) -> None:
        self._running[tier].send_signal(number)

    def kill_all(self) -> None:
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()

    def _configuration(self) -> Path:
        file = self.home / "scheduler.yaml"
        file.write_text(yaml.safe_dump(self.run.service.configuration.model_dump(mode="json", exclude_defaults=True)))
        return file


@contextmanager
def processes(run: LiveRun, home: Path) -> Iterator[Processes]:
    """Whatever was taken over is killed in the end."""
    beside = Processes(run, home)
    try:
        yield beside
    finally:
        beside.kill_all()
