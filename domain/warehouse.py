"""A data warehouse as placement sees it: regions, tables, and the jobs that read them (MAST §3.1), in columns.

Columns instead of objects, because there are a million tables and five million pairs of a job and a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Indices = NDArray[np.int32]
Flags = NDArray[np.bool_]

NOWHERE = -1
"""Stands for no region, no GPU model or no application among indices."""
MOST_REGIONS = 63
"""As many as the bits of the set of a table's replicas."""


@dataclass(frozen=True, slots=True)
class Regions:
    """What each region has; all columns in the order of `names`."""

    names: tuple[str, ...]
    storage_bytes: Floats
    """(regions,) how much can be stored: the limit of Expression 4."""
    gpu_models: tuple[str, ...]
    gpu_hours: Floats
    """(GPU models, regions) supply in a day."""
    applications: tuple[str, ...] = ()
    cpu_hours: Floats | None = None
    """(applications, regions) an application's quota in a day: the limit of Expression 5. None: no application has any."""
    link_bytes_per_day: Floats | None = None
    """(regions, regions) what can be copied from the first to the second. None: links are no limit."""
    correlated_failures: Floats | None = None
    """(regions, regions) how likely the second fails when the first does, in [0, 1]. None: nobody knows."""
    spare_gpu_share: Floats | None = None
    """(regions,) the part of its GPU hours that a region keeps for the jobs of one that fails; NaN: what demand leaves."""

    @property
    def count(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class Tables:
    """All tables; columns in the order of `names`."""

    names: Sequence[str]
    size_bytes: Integers
    home: Indices
    """The index of the home region: where new data appears."""
    replicas: Integers
    """Bit r is set when region r holds a complete copy beside the home."""

    @property
    def count(self) -> int:
        return len(self.home)


@dataclass(frozen=True, slots=True)
class Jobs:
    """What reads tables: training workloads, and jobs of analytics applications (Spark, Presto)."""

    names: Sequence[str]
    training: Flags
    gpu_model: Indices
    """The index of the GPU model that it needs; -1 when it needs none."""
    priority: Indices
    """An index into `priorities`."""
    priorities: tuple[int, ...]
    """All priorities that occur, the highest first: 0 is higher than 1."""
    gpu_hours: Floats
    """What it needs in a day."""
    cpu_hours: Floats
    application: Indices
    """The index of the application that it belongs to; -1 for none."""
    weight: Floats
    """How much its reads count in Expression 1; 1 unless an administrator says otherwise."""
    table_start: Integers
    """(jobs + 1,) job j reads the tables `tables[table_start[j] : table_start[j + 1]]`, each once."""
    tables: Indices
    newest_share: Floats | None = None
    """(pairs,) in the order of `tables`: the job reads the newest partitions, which are this part of the table's bytes, in
    (0, 1]. None: every job reads whole tables."""

    @property
    def count(self) -> int:
        return len(self.gpu_model)


@dataclass(frozen=True, slots=True)
class Warehouse:
    """Regions, tables and jobs together."""

    regions: Regions
    tables: Tables
    jobs: Jobs

    def readers(self) -> tuple[Integers, Indices]:
        """Which jobs read a table: (tables + 1,) starts, and the jobs of each table in ascending order."""
        pairs = self.jobs.tables
        start = np.zeros(self.tables.count + 1, np.int64)
        np.cumsum(np.bincount(pairs, minlength=self.tables.count), out=start[1:])
        job_of_pair = np.repeat(np.arange(self.jobs.count, dtype=np.int32), np.diff(self.jobs.table_start))
        return start, job_of_pair[np.argsort(pairs, kind="stable")]


@dataclass(frozen=True, slots=True)
class Namespaces:
    """What holds for all tables of a namespace; one that is not among them has no owner and one disaster copy."""

    names: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    """Whose each is; empty: nobody's."""
    disaster_copies: tuple[int, ...] = ()
    """In how many regions besides the home its tables should be."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """Parts of tables, which never change (MAST §3.1); columns, in no order."""

    table: Indices
    """The index of the table that it is part of."""
    names: Sequence[str]
    size_bytes: Integers
    checksums: Sequence[str]
    """Empty: not known."""
    created_s: Floats

    @property
    def count(self) -> int:
        return len(self.table)


@dataclass(frozen=True, slots=True)
class CopyAges:
    """Of some copies beside the homes, up to when they have every partition; of the others nobody knows."""

    table: Indices
    region: Indices
    complete_until_s: Floats


@dataclass(frozen=True, slots=True)
class WarehouseCatalog:
    """A warehouse with what only its catalog knows, and no decision about homes depends on."""

    warehouse: Warehouse
    namespaces: Namespaces
    partitions: Partitions
    copy_ages: CopyAges
