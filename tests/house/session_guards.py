"""A test session in which nothing passed, or which leaves processes running, is not a green one."""

import os
from collections.abc import Generator

import psutil
import pytest

SESSION_VARIABLE = "TOPMAST_TEST_SESSION"
"""In the environment of every process that the session starts, however far it has detached itself."""

DEFAULT_GRACE_S = 20.0
"""For servers that were told to stop at the end of the last test."""

_KILL_S = 10.0
"""How long a killed process may take to be gone."""

# Lives as long as the interpreter that uses shared memory, and ends with it.
_ENDS_WITH_THE_INTERPRETER = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


class SessionGuards:
    """The pytest plug-in. `session_name` is the value of SESSION_VARIABLE in this session."""

    def __init__(self, session_name: str, grace_s: float) -> None:
        self._session_name = session_name
        self._grace_s = grace_s
        self._passed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed += 1

    # Inside the terminal's own wrapper, so that its summary and closing line already know; and after everything else,
    # so that worker processes have ended.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None]:
        yield
        if session.config.option.collectonly:
            return
        left = end_processes_left(self._session_name, self._grace_s)
        if left:
            _fail(session, "processes left running", "\n".join(left))
        if self._passed == 0 and exitstatus == pytest.ExitCode.OK:
            _fail(session, "tests that passed", "no test passed: that is not a success")


def end_processes_left(session_name: str, grace_s: float) -> list[str]:
    """Give this session's processes a while to end, kill the others; returns what those were, sorted."""
    _, alive = psutil.wait_procs(_processes_of(session_name), timeout=grace_s)
    left: list[str] = []
    for process in alive:
        try:
            left.append(f"{process.pid}: {' '.join(process.cmdline())[:300]}")
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, timeout=_KILL_S)
    return sorted(left)


def _processes_of(session_name: str) -> list[psutil.Process]:
    """Every process with the session's name in its environment, and every child; this one and its parents are not."""
    found = {process.pid: process for process in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter():
        try:
            if process.environ().get(SESSION_VARIABLE) == session_name:
                found[process.pid] = process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            # It has ended, or belongs to another session: not ours either way.
            continue
    found.pop(os.getpid(), None)
    return [process for _, process in sorted(found.items()) if not _may_stay(process)]


def _may_stay(process: psutil.Process) -> bool:
    try:
        command = " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return True
    return any(name in command for name in _ENDS_WITH_THE_INTERPRETER)


def _fail(session: pytest.Session, what: str, why: str) -> None:
    """Count one error, as if a last test had failed in its teardown."""
    report = pytest.TestReport(
        nodeid=what, location=(what, None, what), keywords={}, outcome="failed", longrepr=why, when="teardown"
    )
    session.config.hook.pytest_runtest_logreport(report=report)
    session.exitstatus = pytest.ExitCode.TESTS_FAILED
