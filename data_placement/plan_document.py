"""A plan as people and programs read it: its figures before and after, and a sentence for each move."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from data_placement.community_explanation import Community
from data_placement.move_kinds import COPY, HOME, HOME_KEEPING_COPY
from data_placement.placement_plan import PlacementPlan
from data_placement.plan_choices import NO_MOVES, PlanChoices
from domain.warehouse import Floats, Warehouse

SHOWN_COMMUNITIES = 10
"""Among the figures of a plan: those with the most tables."""


@dataclass(frozen=True, slots=True)
class ProposedMove:
    """One thing that a plan wants done."""

    table: str
    source: str
    """The home when the plan was made."""
    target: str
    kind: str
    """HOME: the target becomes the home and the source gives up its copy; HOME_KEEPING_COPY: the source keeps it; COPY: the
    target gets one more."""
    size_bytes: int
    """Of the table, or of the part of it that is copied."""
    priority: int | None
    """The highest of its readers' (0 is the highest of all); None: nobody reads it."""
    reason: str
    newest_share: float | None = None
    """A COPY of the newest partitions alone, which are this part of the table's bytes; None: of all of it."""


def figures_document(
    warehouse: Warehouse, found: PlacementPlan, choices: PlanChoices, wall_s: float, peak_mib: float
) -> dict[str, object]:
    """The figures as a JSON object; numbers that are none or endless are null."""
    before, after, moves, replicas = found.before, found.after, found.solution.moves, found.replicas
    stored = float(warehouse.tables.size_bytes.sum())
    copies = replicas.bytes_for_jobs + replicas.bytes_against_disasters + replicas.bytes_of_hot_tables
    return {
        "solver": None if choices.preset == NO_MOVES else choices.solver,
        "version": choices.preset,
        "tables": warehouse.tables.count,
        "regions": warehouse.regions.count,
        "jobs": warehouse.jobs.count,
        "pairs": len(warehouse.jobs.tables),
        "objective": {
            when: {"total": each.total, "reads": each.reads, "gpu": each.gpu, "storage": each.storage}
            for when, each in (("before", before), ("after", after))
        },
        "bound": found.solution.bound,
        "gap": _gap(after.total, found.solution.bound),
        "finished": found.solution.finished,
        "moves": len(moves.table),
        "moved_bytes": float(moves.bytes.sum()),
        "overload_before": _finite(before.overload),
        "overload_after": _finite(after.overload),
        "overload_deviation_before": before.overload_deviation,
        "overload_deviation_after": after.overload_deviation,
        "home_training_rate": after.home_training_rate,
        "home_training_rate_before": before.home_training_rate,
        "collocation_rate": after.collocation_rate,
        "collocation_rate_before": before.collocation_rate,
        "cross_region_bytes_before": before.cross_region_bytes,
        "cross_region_bytes": after.cross_region_bytes,
        "replica_bytes": copies,
        "extra_storage": copies / stored if stored else 0.0,
        "tables_without_disaster_copy": replicas.without_disaster_copy,
        "jobs_without_region": replicas.jobs_without_region,
        "exceeded_before": list(before.exceeded),
        "exceeded_after": list(after.exceeded),
        "by_region": _by_region(warehouse, found),
        "communities": [community_document(one) for one in found.communities.described[:SHOWN_COMMUNITIES]],
        "remarks": list(found.solution.remarks),
        "wall_s": wall_s,
        "peak_rss_mib": peak_mib,
    }


def proposed_moves(warehouse: Warehouse, found: PlacementPlan) -> Iterator[ProposedMove]:
    """The new homes in their order, then the new copies, those that the most important readers wait for first."""
    names, tables = warehouse.regions.names, warehouse.tables
    priority = _highest_priorities(warehouse)
    moves = found.solution.moves
    masks = found.replicas.masks
    for place, table in enumerate(moves.table.tolist()):
        keeps = bool(masks[table] >> int(tables.home[table]) & 1)
        yield ProposedMove(
            tables.names[table],
            names[int(moves.source[place])],
            names[int(moves.target[place])],
            HOME_KEEPING_COPY if keeps else HOME,
            int(tables.size_bytes[table]),
            _priority(warehouse, int(priority[table])),
            move_reason(found, place)
            + (f"; {names[int(tables.home[table])]} keeps a copy" if keeps else "")
            + found.communities.clause(table),
        )
    start, _ = warehouse.readers()
    readers = np.diff(start)
    home = found.solution.home.astype(np.int64)
    new = masks & ~tables.replicas & ~(np.int64(1) << tables.home.astype(np.int64)) & ~(np.int64(1) << home)
    parts = _new_parts(warehouse, found)
    wanted = np.flatnonzero((new != 0) | (parts > 0.0).any(axis=1))
    for table in wanted[np.lexsort((wanted, -readers[wanted], priority[wanted]))].tolist():
        for region in range(len(names)):
            share = float(parts[table, region])
            if not new[table] >> region & 1 and share == 0.0:
                continue
            is_whole, size = bool(new[table] >> region & 1), int(tables.size_bytes[table])
            what = "one more copy" if is_whole else f"a copy of the newest {share:.0%}"
            yield ProposedMove(
                tables.names[table],
                names[int(tables.home[table])],
                names[region],
                COPY,
                size if is_whole else math.ceil(share * size),
                _priority(warehouse, int(priority[table])),
                f"{what} beside the home {names[int(home[table])]}; {_readers(int(readers[table]))}"
                + found.communities.clause(table),
                None if is_whole else share,
            )


def _readers(jobs: int) -> str:
    if jobs == 0:
        return "no job reads it"
    return "1 job reads it" if jobs == 1 else f"{jobs:,} jobs read it"


def _new_parts(warehouse: Warehouse, found: PlacementPlan) -> Floats:
    """(T, R) the part of the table's bytes that a region is to hold as its newest partitions alone; 0: none."""
    parts = found.replicas.parts
    if parts is None:
        return np.zeros((warehouse.tables.count, warehouse.regions.count))
    region = np.arange(warehouse.regions.count)
    home = found.solution.home.astype(np.int64)[:, None] == region
    copied = (found.replicas.masks[:, None] >> region & 1) > 0
    return np.where(home | copied, 0.0, parts.held)


def move_reason(found: PlacementPlan, place: int) -> str:
    """Which terms of the objective a move to a new home made better and worse, by how much."""
    moves = found.solution.moves
    terms = [
        (gain, words)
        for gain, words in (
            (float(moves.reads[place]), "reads across regions"),
            (float(moves.gpu[place]), "GPU demand beside supply"),
            (float(moves.storage[place]), "storage beside capacity"),
        )
        if gain != 0.0
    ]
    better = ", ".join(f"{words} {gain:.3g} better" for gain, words in sorted(terms, reverse=True) if gain > 0)
    worse = ", ".join(f"{words} {-gain:.3g} worse" for gain, words in sorted(terms) if gain < 0)
    return "; ".join(part for part in (better, worse) if part)


def community_document(community: Community) -> dict[str, object]:
    """A community as a JSON object."""
    return {**asdict(community), "sentence": community.sentence}


def _by_region(warehouse: Warehouse, found: PlacementPlan) -> list[dict[str, object]]:
    """Of each region: high-priority demand over supply, the share of its storage that homes take, and the demand and the
    supply of each GPU model by priority.
    """
    before, after = found.before, found.after
    demand_before = _demand(warehouse, found, before=True)
    demand_after = _demand(warehouse, found, before=False)
    return [
        {
            "region": name,
            "load_before": _finite(float(before.region_load[region])),
            "load_after": _finite(float(after.region_load[region])),
            "stored_before": float(before.stored_share[region]),
            "stored_after": float(after.stored_share[region]),
            "gpu_hours": [
                {
                    "gpu_model": model,
                    "supply": float(warehouse.regions.gpu_hours[place, region]),
                    "demand_before": _by_priority(warehouse, demand_before[place, :, region]),
                    "demand_after": _by_priority(warehouse, demand_after[place, :, region]),
                }
                for place, model in enumerate(warehouse.regions.gpu_models)
            ],
        }
        for region, name in enumerate(warehouse.regions.names)
    ]


def _demand(warehouse: Warehouse, found: PlacementPlan, *, before: bool) -> Floats:
    """(GPU models, priorities, regions) hours of training"""
    jobs = warehouse.jobs
    where = found.job_region_before if before else found.replicas.job_region
    counted = jobs.training & (where >= 0) & (jobs.gpu_model >= 0)
    demand = np.zeros((len(warehouse.regions.gpu_models), len(jobs.priorities), warehouse.regions.count))
    np.add.at(demand, (jobs.gpu_model[counted], jobs.priority[counted], where[counted]), jobs.gpu_hours[counted])
    return demand


def _by_priority(warehouse: Warehouse, demand: Floats) -> dict[str, float]:
    return {str(priority): float(hours) for priority, hours in zip(warehouse.jobs.priorities, demand, strict=True)}


def _highest_priorities(warehouse: Warehouse) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """(T,) the rank of the highest priority among a table's readers; one more than there are where nobody reads it."""
    jobs = warehouse.jobs
    highest = np.full(warehouse.tables.count, len(jobs.priorities), np.int64)
    np.minimum.at(highest, jobs.tables, np.repeat(jobs.priority.astype(np.int64), np.diff(jobs.table_start)))
    return highest


def _priority(warehouse: Warehouse, rank: int) -> int | None:
    return warehouse.jobs.priorities[rank] if rank < len(warehouse.jobs.priorities) else None


def _gap(cost: float, bound: float | None) -> float | None:
    """Which part of the cost a better placement could save at most; None where nothing is known."""
    if bound is None:
        return None
    return max(0.0, cost - bound) / cost if cost > 0.0 else 0.0


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
