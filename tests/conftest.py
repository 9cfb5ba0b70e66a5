"""What every test can rely on: repeatable randomness, a home of its own, and nothing left behind."""

import os
import tempfile
import zlib
from pathlib import Path
from shutil import rmtree

import numpy as np
import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.house.session_guards import DEFAULT_GRACE_S, SESSION_VARIABLE, SessionGuards

# The same examples in every run, so that a red run is red again; the search for new ones is `make test-nightly`.
# No deadlines: the machine may be busy, and no test is a timed test.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    max_examples=50,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# How many examples a test says for itself is a share of these (tests/examples.py).
settings.register_profile("nightly", settings.get_profile("repeatable"), derandomize=False, max_examples=2_000)
settings.load_profile("repeatable")

pytest_plugins = ["tests.conftest_postgres"]

_HOME = pytest.StashKey[Path]()

_WAITING = frozenset({"live", "installed", "demo", "extending"})
"""Folders of tests that start whole services."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=1, help="the seed of the fixture `generator`")
    parser.addoption("--rewrite", action="store_true", help="write golden files anew; read the difference")
    parser.addoption(
        "--outage-s", type=float, default=30.0, help="how long everything but clusters is away in test_outages.py"
    )
    parser.addoption(
        "--leftover-grace",
        type=float,
        default=DEFAULT_GRACE_S,
        help="seconds that processes may take to end after the last test",
    )


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.getoption('seed')} (repeat with --seed={config.getoption('seed')})"


def pytest_configure(config: pytest.Config) -> None:
    # Short, because the path of a Unix socket below it may have 107 bytes only.
    home = Path(tempfile.mkdtemp(prefix="topmast-"))
    config.stash[_HOME] = home
    os.environ["TOPMAST_HOME"] = str(home)
    os.environ.pop("TOPMAST_DATABASE_URL", None)
    # Of services in the process of a test: whatever a test takes for its standard output and error, a command's must be its alone.
    log = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 -- as long as the process
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(log))
    if not hasattr(config, "workerinput"):
        # Where tests run in several worker processes, these belong to the session that started them: it alone guards.
        os.environ[SESSION_VARIABLE] = home.name
        config.pluginmanager.register(SessionGuards(home.name, config.getoption("leftover_grace")))


def pytest_unconfigure(config: pytest.Config) -> None:
    home = config.stash.get(_HOME, None)
    if home is not None:
        rmtree(home, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spreads the files whose tests mostly wait for processes of their own among those that compute: where several workers share
    the processors, the ones use what the others leave. Of a file, and of all others, the order stays."""
    waiting: dict[Path, list[pytest.Item]] = {}
    computing: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files = waiting if _WAITING & set(item.path.parts) else computing
        files.setdefault(item.path, []).append(item)
    every = len(computing) / (len(waiting) + 1)
    ordered = [(float(place), 0, tests) for place, tests in enumerate(computing.values())]
    ordered += [((place + 1) * every, place + 1, tests) for place, tests in enumerate(waiting.values())]
    items[:] = [item for _, _, tests in sorted(ordered, key=lambda entry: entry[:2]) for item in tests]


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> np.random.Generator:
    """Randomness of the test's own: depends on --seed and the test's name, not on which tests ran before."""
    name = zlib.crc32(request.node.nodeid.encode())
    return np.random.default_rng([int(request.config.getoption("seed")), name])
