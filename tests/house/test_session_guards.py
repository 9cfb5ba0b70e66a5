"""The guards of the session, tried on small sessions of their own."""

import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from tests.house.repository import ROOT

# The guards wait this long for what a test left running, here.
_GRACE_S = 0.2

# In one process, and in two worker processes as `make test` runs them.
WORKERS = ("0", "2")


@pytest.mark.parametrize("workers", WORKERS)
def test_a_session_in_which_everything_is_skipped_fails(tmp_path: Path, workers: str) -> None:
    finished = _session(tmp_path, "import pytest\ndef test_nothing(): pytest.skip('nothing here')\n", workers)
    assert finished.returncode == pytest.ExitCode.TESTS_FAILED
    assert "no test passed" in finished.stdout
    assert "1 skipped, 1 error" in finished.stdout.splitlines()[-1]


def test_a_session_without_tests_fails(tmp_path: Path) -> None:
    assert _session(tmp_path, "def helper(): ...\n").returncode == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize("workers", WORKERS)
def test_a_session_that_leaves_a_process_running_fails_and_ends_it(tmp_path: Path, workers: str) -> None:
    source = """
        import os, pathlib, sys

        def test_forgets_its_server():
            command = [sys.executable, "-c", "import signal; signal.pause()", "forgotten-server"]
            process = os.posix_spawn(sys.executable, command, os.environ)
            pathlib.Path(__file__).with_name("pid").write_text(str(process))
    """
    finished = _session(tmp_path, source, workers)
    assert finished.returncode == pytest.ExitCode.TESTS_FAILED
    assert "forgotten-server" in finished.stdout
    assert "1 passed, 1 error" in finished.stdout.splitlines()[-1]
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text(encoding="ascii")))


@pytest.mark.parametrize("workers", WORKERS)
def test_a_good_session_passes(tmp_path: Path, workers: str) -> None:
    finished = _session(tmp_path, "def test_something(): assert 1 + 1 == 2\n", workers)
    assert finished.returncode == pytest.ExitCode.OK, finished.stdout
    assert "1 passed" in finished.stdout.splitlines()[-1]


def _session(folder: Path, source: str, workers: str = "0") -> subprocess.CompletedProcess[str]:
    """Run a session over one test module, with the configuration and the guards of this repository."""
    module = folder / "test_probe.py"
    module.write_text(textwrap.dedent(source), encoding="utf-8")
    options = ["-p", "tests.conftest", "-c", "pyproject.toml", "--rootdir", str(folder), f"--leftover-grace={_GRACE_S}"]
    options += ["-n", workers]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(module)], cwd=ROOT, capture_output=True, text=True, check=False
    )
