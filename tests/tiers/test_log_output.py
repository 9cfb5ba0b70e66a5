"""The service's own log lines, on a disk that takes none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
from pathlib import Path
import structlog
from services.log_output import configure_logging
configure_logging(Path("/dev/full"))
log = structlog.get_logger()
for number in range(10_000):
    log.info("a line", number=number)
print("goes on")
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_takes_lines_of_the_log_and_ends_nobody() -> None:
    logging = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False)
    assert (logging.returncode, logging.stdout, logging.stderr) == (0, "goes on\n", "")
