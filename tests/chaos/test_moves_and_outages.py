"""Tables move while what moves them, and what it writes down in, is killed, stopped and replaced."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from services.database.embedded import EmbeddedLayout
from services.database.server_processes import find_server_processes
from tests.live.killed_moves import SIZE
from tests.live.moving_service import moving_service
from tests.live.real_service import RealService

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

_OUTAGE_REAL_S = 20.0


def test_movers_killed_one_after_the_other(tmp_path: Path, generator: np.random.Generator) -> None:
    with moving_service(tmp_path / "storage", 3, generator) as moving:
        for _ in range(6):
            for mover in moving.movers()[:1]:
                mover.kill()
            moving.check()
            moving.until_copying(SIZE // 8)
        moving.finish()


def test_postgresql_that_is_killed_and_stopped_in_mid_move(tmp_path: Path, generator: np.random.Generator) -> None:
    with moving_service(tmp_path / "storage", 3, generator) as moving:
        moving.service.until_postgres_replaced(moving.service.kill_postgres())
        moving.until_copying(SIZE // 4)
        moving.check()
        with sleeping_postgres(moving.service):
            time.sleep(_OUTAGE_REAL_S)
        moving.check()
        moving.until_copying(SIZE // 4)
        moving.finish()


@contextmanager
def sleeping_postgres(service: RealService) -> Iterator[None]:
    """PostgreSQL does nothing, and neither answers nor refuses, as long as the context lasts."""
    processes = find_server_processes(EmbeddedLayout.of(service.home).data)
    assert processes
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            _resume(process)


def _resume(process: psutil.Process) -> None:
    try:
        process.resume()
    except psutil.NoSuchProcess:
        return
