"""A run's tables as a file: columns of numbers as NumPy keeps them (`.npz`), everything else as JSON beside them.

Nothing in it is executed when it is read. What is loaded equals what was saved, to the last bit.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from formats.problems import FieldProblem, FormatError
from simulator.results.run_record import (
    AttemptTable,
    Flags,
    Integers,
    MachineTable,
    Reals,
    RunCounts,
    RunRecord,
    ShareTable,
    WorkloadTable,
)

LAYOUT = 4
"""Of the file; another number means that it must be made anew."""

Columns: TypeAlias = Mapping[str, NDArray[np.generic]]
_DOCUMENT = "document"
_SECONDS = "waited_for_data_s"
"""The only count that is no whole number"""
_TABLES = ("machines", "workloads", "attempts", "shares")


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A record, and what was noted with it."""

    record: RunRecord
    notes: Mapping[str, float]


def save_record(path: Path, record: RunRecord, notes: Mapping[str, float] | None = None) -> None:
    """Writes a record to a file of exactly this name; `notes` are numbers that are kept with it."""
    columns: dict[str, NDArray[np.generic]] = {}
    for table in _TABLES:
        for name, value in _columns_of(getattr(record, table)).items():
            columns[f"{table}.{name}"] = value
    for position, kind in enumerate((np.int64, np.float64, np.float64)):
        columns[f"machine_down.{position}"] = np.array([times[position] for times in record.machine_down], dtype=kind)
    document = {
        "layout": LAYOUT,
        "policy": record.policy,
        "trace": record.trace,
        "seed": record.seed,
        "tenants": record.tenants,
        "regions": record.regions,
        "region_gpus": record.region_gpus,
        "machines": record.machines.names,
        "inference_machines": record.inference_machines,
        "workloads": record.workloads.ids,
        "started_s": record.started_s,
        "ended_s": record.ended_s,
        "broken_off": record.broken_off,
        "stalled": record.stalled,
        "not_submitted": record.not_submitted,
        "counts": {field.name: getattr(record.counts, field.name) for field in fields(RunCounts)},
        "notes": dict(notes or {}),
    }
    text = json.dumps(document, ensure_ascii=False).encode("utf-8")
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **{_DOCUMENT: np.frombuffer(text, dtype=np.uint8)}, **columns)


def load_record(path: Path) -> SavedRun:
    """What `save_record` wrote; raises FormatError when the file is not there, damaged or of another layout."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            columns: Columns = {name: file[name] for name in file.files}
        document = json.loads(columns[_DOCUMENT].tobytes())
        if document["layout"] != LAYOUT:
            raise _unusable(path, f"has the layout {document['layout']}, not {LAYOUT}")
        return SavedRun(_record(document, columns), {str(name): float(v) for name, v in document["notes"].items()})
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, EOFError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unusable(path, f"is no run's tables: {error}") from error


def _unusable(path: Path, description: str) -> FormatError:
    return FormatError(str(path), [FieldProblem("", description)])


def _columns_of(table: object) -> dict[str, NDArray[np.generic]]:
    """The columns of a table that has them; names and missing columns are no columns of numbers."""
    if not isinstance(table, MachineTable | WorkloadTable | AttemptTable | ShareTable):
        raise TypeError(f"{type(table).__name__} is no table of a record")
    values = {field.name: getattr(table, field.name) for field in fields(table)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


class _Table:
    """The columns of one table, each as the kind of number that it must be."""

    def __init__(self, name: str, columns: Columns) -> None:
        self._name = name
        self._columns = columns

    def integers(self, column: str) -> Integers:
        return self._columns[f"{self._name}.{column}"].astype(np.int64, casting="equiv")

    def reals(self, column: str) -> Reals:
        return self._columns[f"{self._name}.{column}"].astype(np.float64, casting="equiv")

    def reals_if_any(self, column: str) -> Reals | None:
        return self.reals(column) if f"{self._name}.{column}" in self._columns else None

    def flags(self, column: str) -> Flags:
        return self._columns[f"{self._name}.{column}"].astype(np.bool_, casting="equiv")


def _record(document: dict[str, object], columns: Columns) -> RunRecord:
    machines, shares, down = (_Table(name, columns) for name in ("machines", "shares", "machine_down"))
    counts = document["counts"]
    if not isinstance(counts, dict):
        raise TypeError("counts must be an object")
    return RunRecord(
        policy=str(document["policy"]),
        trace=str(document["trace"]),
        seed=_whole(document["seed"]),
        tenants=_names(document["tenants"]),
        regions=_names(document["regions"]),
        region_gpus=tuple(_whole(gpus) for gpus in _list(document["region_gpus"])),
        machines=MachineTable(_names(document["machines"]), machines.integers("region"), machines.integers("gpus")),
        workloads=_workloads(_names(document["workloads"]), _Table("workloads", columns)),
        attempts=_attempts(_Table("attempts", columns)),
        shares=ShareTable(
            machine=shares.integers("machine"),
            gpus=shares.integers("gpus"),
            from_s=shares.reals_if_any("from_s"),
            until_s=shares.reals_if_any("until_s"),
        ),
        machine_down=tuple(
            zip(down.integers("0").tolist(), down.reals("1").tolist(), down.reals("2").tolist(), strict=True)
        ),
        started_s=_real(document["started_s"]),
        ended_s=_real(document["ended_s"]),
        broken_off=document["broken_off"] is True,
        counts=RunCounts(
            **{name: _whole(count) for name, count in counts.items() if name != _SECONDS},
            waited_for_data_s=_real(counts[_SECONDS]),
        ),
        inference_machines=tuple(_whole(place) for place in _list(document["inference_machines"])),
        stalled=document.get("stalled", False) is True,
        not_submitted=_whole(document.get("not_submitted", 0)),
    )


def _workloads(ids: tuple[str, ...], table: _Table) -> WorkloadTable:
    return WorkloadTable(
        ids=ids,
        tenant=table.integers("tenant"),
        priority=table.integers("priority"),
        within_quota=table.flags("within_quota"),
        gpus=table.integers("gpus"),
        submitted_s=table.reals("submitted_s"),
        work_s=table.reals("work_s"),
        first_started_s=table.reals("first_started_s"),
        ended_s=table.reals("ended_s"),
        end=table.integers("end"),
        done_before=table.reals_if_any("done_before"),
    )


def _attempts(table: _Table) -> AttemptTable:
    return AttemptTable(
        workload=table.integers("workload"),
        number=table.integers("number"),
        region=table.integers("region"),
        priority=table.integers("priority"),
        level=table.integers("level"),
        dispatched_s=table.reals("dispatched_s"),
        started_s=table.reals("started_s"),
        ended_s=table.reals("ended_s"),
        end=table.integers("end"),
        evicted_by=table.integers("evicted_by"),
        gpus=table.integers("gpus"),
        guaranteed=table.flags("guaranteed"),
        progress_at_start=table.reals("progress_at_start"),
        progress_at_end=table.reals("progress_at_end"),
        progress_kept=table.reals("progress_kept"),
        first_share=table.integers("first_share"),
    )


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("must be a list")
    return value


def _names(value: object) -> tuple[str, ...]:
    return tuple(str(name) for name in _list(value))


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"must be a whole number, not {value!r}")
    return value


def _real(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"must be a number, not {value!r}")
    return float(value)
