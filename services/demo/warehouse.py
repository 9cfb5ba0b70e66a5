"""The small warehouse of the demo: tables that are real files, their use, a plan of where they should be, and its moves."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from domain.events import JsonValue
from domain.fleet import Fleet
from domain.identifiers import RegionId, TableId
from domain.table import Table
from topmast import Client
from topmast.warehouses import AppliedPlan, WarehouseTable

FAR_TABLE = TableId("field_recordings")
"""Only in the last region, for a workload that cannot run there."""
_FILE_BYTES_PER_GIB = 32
"""So small is each file of a table in the demo."""
_FILES_PER_TABLE = 2
_STORAGE_BYTES = 64 << 20
"""Of a region."""
_HOURS_PER_DAY = 24
_GIB = 2**30
_FAR_GIB = 8192
_READ_TOGETHER = (
    ("recommend", "A100", 480.0, ("user_activity", "clicks", "speech")),
    ("describe", "V100", 240.0, ("images", "text_corpus")),
    ("transcribe", "A100", 240.0, ("speech", "text_corpus", FAR_TABLE)),
    ("evaluate", "T4", 24.0, ("benchmarks",)),
)
"""Jobs that were seen so far: the GPU model that each needs, GPU hours in a day, and its tables."""


@dataclass(frozen=True, slots=True)
class DemoWarehouse:
    """The tables, and where their files are."""

    tables: tuple[Table, ...]
    folder: Path
    checksums: Mapping[TableId, Mapping[str, str]]
    """SHA-256 of each table's files, by name."""

    @property
    def catalog(self) -> Path:
        """The folder that is imported."""
        return self.folder / "catalog"


def storage_folders(folder: Path, fleet: Fleet) -> dict[RegionId, Path]:
    """Where each region stores its tables."""
    return {region.region: folder / "storage" / region.region for region in fleet.regions}


def tables_of_files(tables: Sequence[Table], regions: Sequence[RegionId]) -> tuple[Table, ...]:
    """The tables, and one more in the last region, as large as their files are here."""
    far = Table(FAR_TABLE, _FAR_GIB * _GIB, regions[-1])
    return tuple(
        [
            replace(table, size_bytes=max(1, int(table.size_bytes / _GIB * _FILE_BYTES_PER_GIB)) * _FILES_PER_TABLE)
            for table in (*tables, far)
        ]
    )


def make_warehouse(folder: Path, fleet: Fleet, tables: Sequence[Table]) -> DemoWarehouse:
    """Writes the files of the tables, and the catalog that says where they are and who reads them."""
    rng = np.random.default_rng(0)
    storage = storage_folders(folder, fleet)
    checksums: dict[TableId, dict[str, str]] = {}
    for table in tables:
        contents = {
            f"part-{number}": rng.bytes(table.size_bytes // _FILES_PER_TABLE) for number in range(_FILES_PER_TABLE)
        }
        for region in table.regions:
            (storage[region] / table.table).mkdir(parents=True, exist_ok=True)
            for name, content in contents.items():
                (storage[region] / table.table / name).write_bytes(content)
        checksums[table.table] = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    for place in storage.values():
        place.mkdir(parents=True, exist_ok=True)
    warehouse = DemoWarehouse(tuple(tables), folder, checksums)
    _write_catalog(warehouse, fleet)
    return warehouse


def _write_catalog(warehouse: DemoWarehouse, fleet: Fleet) -> None:
    supply: dict[tuple[str, str], int] = {}
    for region in fleet.regions:
        for machine in region.machines():
            if machine.gpus:
                key = (region.region, machine.gpu_model)
                supply[key] = supply.get(key, 0) + machine.gpus * _HOURS_PER_DAY
    known = {table.table for table in warehouse.tables}
    read = [(job, table) for job, _, _, tables in _READ_TOGETHER for table in tables if table in known]
    reading = {job for job, _ in read}
    files: dict[str, tuple[Sequence[str], Iterable[Sequence[object]]]] = {
        "regions": (("region", "storage_bytes"), [(region.region, _STORAGE_BYTES) for region in fleet.regions]),
        "supply": (("region", "gpu_model", "gpu_hours"), [(*key, hours) for key, hours in sorted(supply.items())]),
        "tables": (
            ("table", "size_bytes", "home", "replicas"),
            [(table.table, table.size_bytes, table.home, " ".join(table.replicas)) for table in warehouse.tables],
        ),
        "jobs": (
            ("job", "gpu_model", "gpu_hours"),
            [(job, model, hours) for job, model, hours, _ in _READ_TOGETHER if job in reading],
        ),
        "reads": (("job", "table"), read),
    }
    warehouse.catalog.mkdir(parents=True, exist_ok=True)
    for name, (columns, rows) in files.items():
        with (warehouse.catalog / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(columns)
            writer.writerows(rows)


class WarehousePlan:
    """Makes a plan of where the tables should be, and applies it, while the caller goes on."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self._address = address
        self._token = token
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="warehouse-plan")
        self._applied: Future[AppliedPlan] | None = None

    def begin(self) -> None:
        """Nothing happens when it has begun."""
        if self._applied is None:
            self._applied = self._threads.submit(self._plan_and_apply)
            self._threads.shutdown(wait=False)

    @property
    def applied(self) -> AppliedPlan | None:
        """None: not yet. Raises what the service refused."""
        return self._applied.result() if self._applied is not None and self._applied.done() else None

    def _plan_and_apply(self) -> AppliedPlan:
        with Client(self._address, token=self._token) as client:
            plan = 0
            for progress in client.data.make_plan():
                plan = progress.plan
            return client.data.apply_plan(plan)


@dataclass(frozen=True, slots=True)
class CheckedCopies:
    """What was found where the catalog says that tables are."""

    moves: int
    bytes: int
    files: int
    wrong: tuple[str, ...]

    def as_json(self) -> dict[str, JsonValue]:
        return {"moves": self.moves, "bytes": self.bytes, "files_checked": self.files, "files_wrong": list(self.wrong)}


def checked_copies(
    warehouse: DemoWarehouse, storage: Mapping[RegionId, Path], catalog: Iterable[WarehouseTable], moved: Sequence[int]
) -> CheckedCopies:
    """Reads every file of every copy that the catalog knows; `moved` are the bytes of each move."""
    wrong: list[str] = []
    files = 0
    for table in catalog:
        for region in (table.home, *(copy.region for copy in table.copies)):
            for name, checksum in warehouse.checksums[TableId(table.table)].items():
                path = storage[RegionId(region)] / table.table / name
                files += 1
                if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != checksum:
                    wrong.append(str(path))
    return CheckedCopies(len(moved), sum(moved), files, tuple(wrong))
