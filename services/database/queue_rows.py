"""The queue as columns that are kept from one look to the next: what has changed is put in its place, what has left is taken out.

Rows stand by (submit time, id by code points), as scan passes want them. A row says when its workload may be tried, so that a
wait that is over needs no look at the database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import TupleRow

from domain.identifiers import TenantId, WorkloadId
from global_scheduler.scan_view import NONE_ASKED, NOT_RANKED
from global_scheduler.view_builder import PendingRows
from services.database.columns import joined, packed, split, unpacked

NUMBER_OF_NAME = "hashtextextended(workload, 0)"
"""SQL: a number for each workload's name, by which what is there is compared with what is known: eight bytes for each row."""

QUEUE_COLUMNS = f"""
    SELECT count(*), {joined("workload")}, {joined("tenant")}, {packed("submitted_s")}, {joined("gpu_model")},
           {packed("gpus")}, {packed("cpus")}, {packed(f"coalesce(priority, {NOT_RANKED}::smallint)")},
           {packed("level")}, {packed("credit")}, {packed("within_quota")},
           {packed("coalesce(queued_since_s, submitted_s)")}, {packed("attained_gpu_s")},
           {packed("attained_s")}, {packed("coalesce(first_started_s, 'infinity')")},
           {packed(f"coalesce(asked_priority, {NONE_ASKED}::smallint)")}, {packed("coalesce(importance, 0::smallint)")},
           {packed("at_limit")}, {packed("not_before_s")}, {packed(NUMBER_OF_NAME)},
           array_agg(place) FILTER (WHERE more_gpus IS NOT NULL),
           array_agg(more_gpus) FILTER (WHERE more_gpus IS NOT NULL)
      FROM (SELECT *, row_number() OVER () - 1 AS place
              FROM (SELECT * FROM queue_entries WHERE {{which}} ORDER BY submitted_s, workload) AS ordered
           ) AS entries"""
"""SQL of the rows of `QueueRows` for which `which` holds, as `rows_from` reads them."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueRows:
    """Columns of queue entries, one element for each; those of names and mappings hold objects."""

    workloads: NDArray[np.object_]
    tenants: NDArray[np.object_]
    submitted_s: NDArray[np.generic]
    gpu_model: NDArray[np.object_]
    gpus: NDArray[np.generic]
    cpus: NDArray[np.generic]
    more_gpus: NDArray[np.object_]
    priority: NDArray[np.generic]
    """NOT_RANKED: no pass has ranked it yet."""
    level: NDArray[np.generic]
    credit: NDArray[np.generic]
    within_quota: NDArray[np.generic]
    queued_since_s: NDArray[np.generic]
    attained_gpu_s: NDArray[np.generic]
    attained_s: NDArray[np.generic]
    first_started_s: NDArray[np.generic]
    asked_priority: NDArray[np.generic]
    importance: NDArray[np.generic]
    at_limit: NDArray[np.generic]
    not_before_s: NDArray[np.float64]
    number: NDArray[np.generic]
    """Of the name, as the database has it."""

    def __len__(self) -> int:
        return len(self.number)

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> QueueRows:
        """Some of the rows, or all in another order."""
        return _of_each(lambda columns: columns[0][chosen], self)

    def next_due_s(self, now: float) -> float | None:
        """When the next of those that must wait may be tried; None when none has to wait."""
        later = self.not_before_s[self.not_before_s > now]
        return float(later.min()) if later.size else None

    def due(self, now: float) -> PendingRows:
        """Those that need not wait any longer, for a scan pass."""
        is_due = self.not_before_s <= now
        rows = self if is_due.all() else self.where(is_due)
        return PendingRows(
            workloads=rows.workloads.tolist(),
            tenants=rows.tenants.tolist(),
            submitted_s=rows.submitted_s,
            gpu_model=rows.gpu_model.tolist(),
            gpus=rows.gpus,
            cpus=rows.cpus,
            more_gpus=rows.more_gpus.tolist(),
            stored_priority=[None if value == NOT_RANKED else value for value in rows.priority.tolist()],
            stored_level=rows.level,
            stored_credit=rows.credit,
            stored_within_quota=rows.within_quota,
            queued_since_s=rows.queued_since_s,
            attained_gpu_s=rows.attained_gpu_s,
            attained_s=rows.attained_s,
            first_started_s=rows.first_started_s,
            asked_priority=rows.asked_priority,
            importance=_sparse(rows.importance),
            stored_at_limit=rows.at_limit,
        )


def _sparse(column: NDArray[np.generic]) -> Mapping[int, int]:
    places = np.flatnonzero(column)
    return dict(zip(places.tolist(), column[places].tolist(), strict=True))


def rows_from(row: TupleRow) -> QueueRows:
    """What a statement with `QUEUE_COLUMNS` has answered."""
    count = int(row[0])
    more_gpus = np.full(count, None, np.object_)
    for place, more in zip(row[20] or (), row[21] or (), strict=True):
        more_gpus[place] = more
    return QueueRows(
        workloads=_objects([WorkloadId(name) for name in split(row[1])]),
        tenants=_objects([TenantId(name) for name in split(row[2])]),
        submitted_s=unpacked(row[3], "float8", count),
        # A model is never empty here, but a column of one empty name would look like no column.
        gpu_model=_objects(split(row[4])),
        gpus=unpacked(row[5], "int4", count),
        cpus=unpacked(row[6], "float8", count),
        more_gpus=more_gpus,
        priority=unpacked(row[7], "int2", count),
        level=unpacked(row[8], "int2", count),
        credit=unpacked(row[9], "float8", count),
        within_quota=unpacked(row[10], "bool", count),
        queued_since_s=unpacked(row[11], "float8", count),
        attained_gpu_s=unpacked(row[12], "float8", count),
        attained_s=unpacked(row[13], "float8", count),
        first_started_s=unpacked(row[14], "float8", count),
        asked_priority=unpacked(row[15], "int2", count),
        importance=unpacked(row[16], "int2", count),
        at_limit=unpacked(row[17], "bool", count),
        not_before_s=np.asarray(unpacked(row[18], "float8", count), np.float64),
        number=unpacked(row[19], "int8", count),
    )


def _objects(names: list[str]) -> NDArray[np.object_]:
    column = np.empty(len(names), np.object_)
    column[:] = names
    return column


def updated(known: QueueRows, changed: QueueRows, present: NDArray[np.generic]) -> QueueRows | None:
    """The rows that are there (`present`: the numbers of all their names), those that have changed as they are now.

    None: that does not come to what is there, so that something has changed that is not among these.
    """
    stays = np.isin(known.number, present) & ~np.isin(known.number, changed.number)
    unchanged = known if stays.all() else known.where(stays)
    if len(unchanged) + len(changed) != len(present):
        return None
    if len(changed) == 0:
        return unchanged
    together = _of_each(np.concatenate, unchanged, changed)
    return together.where(_order(together, first_new=len(unchanged)))


def same(one: QueueRows, other: QueueRows) -> bool:
    """Whether they say the same of the same workloads."""
    pairs = [(getattr(one, field.name), getattr(other, field.name)) for field in fields(QueueRows)]
    return all(first.shape == second.shape and bool((first == second).all()) for first, second in pairs)


def _order(rows: QueueRows, first_new: int) -> NDArray[np.int64]:
    """The permutation that sorts the rows, of which those before the first new one are sorted."""
    order = np.argsort(rows.submitted_s, kind="stable")
    submitted_s = rows.submitted_s[order]
    new_at = np.flatnonzero(order >= first_new)
    # Names decide only between what was submitted at one time, and the former rows of one time are in order.
    for time_s in np.unique(submitted_s[new_at]):
        first, end = np.searchsorted(submitted_s, time_s, "left"), np.searchsorted(submitted_s, time_s, "right")
        if end - first > 1:
            order[first:end] = sorted(order[first:end].tolist(), key=rows.workloads.__getitem__)
    return order


def _of_each(made_of: Callable[[Sequence[NDArray[np.generic]]], NDArray[np.generic]], *rows: QueueRows) -> QueueRows:
    """Each column made of those of the same name."""
    columns: dict[str, Any] = {
        field.name: made_of([getattr(one, field.name) for one in rows]) for field in fields(QueueRows)
    }
    return replace(rows[0], **columns)
