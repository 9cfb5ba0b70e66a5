"""A real service that moves tables between folders, and what can happen to it meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from formats.data_section import DataRegionSection
from services.configuration import Configuration
from services.data_placement.settings import DataSettings
from services.database.embedded import EmbeddedLayout
from tests.live.killed_moves import (
    FLEET,
    REGIONS,
    Contents,
    bytes_in,
    check_all_moved,
    check_copies,
    make_tables,
    prepare,
    until_done,
)
from tests.live.real_service import PATIENCE_REAL_S, RealService, real_service
from tests.live.real_workloads import TWO_TENANTS

_MOVER = "services.data_placement.movers.file_process"
_BYTES_PER_S = 3e5
"""A table takes about five seconds."""
_LOOK_INTERVAL_REAL_S = 0.05


@dataclass
class MovingService:
    """A running service with tables on their way from region a to b and c."""

    service: RealService
    folder: Path
    contents: Contents

    @property
    def database_url(self) -> str:
        return EmbeddedLayout.of(self.service.home).url()

    def movers(self) -> list[psutil.Process]:
        """Those that live; none of them a zombie."""
        found = []
        for process in self.service.processes():
            try:
                if _MOVER in process.cmdline():
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def until_copying(self, more_bytes: int = 1) -> None:
        """Waits until so many bytes more have arrived in region b than there were."""
        wanted = bytes_in(self.folder) + more_bytes
        deadline_s = time.monotonic() + PATIENCE_REAL_S
        while bytes_in(self.folder) < wanted:
            assert time.monotonic() < deadline_s, "nothing is copied"
            time.sleep(_LOOK_INTERVAL_REAL_S)

    def check(self) -> None:
        """Wherever the catalog says that a table is, it is whole."""
        check_copies(self.database_url, self.folder, self.contents)

    def finish(self) -> None:
        """Waits until all tables are where they were to go, and checks that they are."""
        asyncio.run(until_done(self.database_url))
        check_all_moved(self.database_url, self.folder, self.contents)


@contextmanager
def moving_service(folder: Path, tables: int, generator: np.random.Generator) -> Iterator[MovingService]:
    """So many tables begin to move."""
    contents = make_tables(folder, tables, generator)
    regions = {str(region): DataRegionSection(storage=f"file://{folder / region}") for region in REGIONS}
    configuration = Configuration(data=DataSettings(regions=regions))
    with real_service(FLEET, TWO_TENANTS, 1.0, configuration) as service:
        moving = MovingService(service, folder, contents)
        asyncio.run(prepare(moving.database_url, contents, _BYTES_PER_S))
        moving.until_copying()
        yield moving
