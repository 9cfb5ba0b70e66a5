"""The process of the clients: started, killed, started again, and at last told to come to an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.driver.set_clock import CLOCK_VARIABLE
from tests.chaos.driver.workloads import Witness

_END_PATIENCE_REAL_S = 120.0


@dataclass
class CrewProcess:
    """Of clients that submit, look and cancel."""

    address: str
    history: Path
    witness: Witness
    seed: int
    per_s: float
    log: Path
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.chaos.driver.clients", "--address", self.address]
        command += ["--history", str(self.history), "--witness", str(self.witness.folder)]
        command += ["--seed", str(self.seed), "--per-s", str(self.per_s)]
        with self.log.open("ab") as log:
            # Clients are on other machines: their clocks are nobody's matter.
            environment = {name: value for name, value in os.environ.items() if name != CLOCK_VARIABLE}
            self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> str:
        """In the middle of whatever it does; another one goes on. Returns which process it was."""
        with self._one_at_a_time:
            process = self._running()
            process.kill()
            process.wait()
            self.start()
            return str(process.pid)

    def end(self) -> None:
        """Returns when every submission that it had begun has been answered. Raises AssertionError when it broke."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        code = process.wait(_END_PATIENCE_REAL_S)
        assert code == 0, self.log.read_text(encoding="utf-8", errors="replace")[-3_000:]

    def abandon(self) -> None:
        """It ends, however it stands."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text(encoding="utf-8", errors="replace")[-3_000:]
        return self._process
