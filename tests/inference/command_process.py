"""`topmast inference-scheduler` as a process of its own, asked as a region asks it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Self

from domain.identifiers import ClusterId
from domain.inference import InferenceDemand
from services.inference.demand import LendingCluster
from services.inference.remote import RemoteDemand

TOPMAST = (sys.executable, "-c", "from services.command_line.main import main; main()")
_LISTENING = "listening on "


class InferenceCommand:
    """Runs until it is left; a context manager. `options` are those of the command, beside --listen."""

    def __init__(self, *options: str) -> None:
        command = [*TOPMAST, "inference-scheduler", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.address = self._address()

    def ask(self, machines: int = 4, patience_real_s: float = 30.0) -> InferenceDemand:
        """What it answers for a cluster of so many machines. Raises NoDemand."""

        async def asked() -> InferenceDemand:
            remote = RemoteDemand(self.address, patience_real_s)
            try:
                return await remote.demand(LendingCluster(ClusterId("serving"), machines, 0, 0), 0.0)
            finally:
                await remote.close()

        return asyncio.run(asked())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()

    def _address(self) -> str:
        assert self.process.stderr is not None
        printed = ""
        for line in self.process.stderr:
            printed += line
            if _LISTENING in line:
                return line.partition(_LISTENING)[2].strip()
        raise AssertionError(f"it does not listen: {printed}")
