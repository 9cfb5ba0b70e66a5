"""A warehouse that looks like the published one (MAST Fig. 2, Fig. 3, §3.4, §5.6), as large as wanted, from a seed.

Published: how many workloads share a table (P50 3, P90 17, P99 45), how large what is copied is (565 MB, 103 GB,
7.5 TB), that hardware is spread unevenly, and that before there was a planner the most overloaded region had 2.63 times
as much high-priority demand as supply, while 91 % of it was trained at home. The rest is drawn: teams of different size
have a region where they put nearly all their tables, chosen for its popularity and not for its hardware.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from data_placement.objective.goals import Goals
from data_placement.objective.placement_state import state_of
from data_placement.objective.problem import problem_of
from domain.warehouse import MOST_REGIONS, NOWHERE, Floats, Indices, Integers, Jobs, Regions, Tables, Warehouse

_SHARING = ((0.0, 1.0), (0.5, 3.0), (0.9, 17.0), (0.99, 45.0), (1.0, 300.0))
"""Readers of a table that is read at all (Fig. 3)."""
_READ_SHARE = 0.62
"""Of the tables; with it there are five pairs of a job and a table per table."""
_BYTES = ((0.0, 1e6), (0.5, 565e6), (0.9, 103e9), (0.99, 7.5e12), (1.0, 60e12))
"""Sizes (§3.4)."""
_TABLES_PER_JOB = ((0.0, 1.0), (0.45, 1.0), (0.65, 2.0), (0.85, 5.0), (0.97, 20.0), (1.0, 100.0))
_GPU_HOURS = ((0.0, 1.0), (0.5, 40.0), (0.9, 600.0), (0.99, 3_000.0), (1.0, 10_000.0))
_GPU_MODELS = (("A100", 0.5, 1.0), ("H100", 0.2, 0.5), ("V100", 0.3, 0.8))
"""Name, share of the demand, part of the regions that have it."""
_PRIORITIES = (0, 1, 2)
_PRIORITY_SHARES = (0.3, 0.4, 0.3)
_TRAINING_SHARE = 0.6
_HIGHEST_RATIO = 2.63
"""High-priority demand over supply of the most overloaded region (§5.6)."""
_RATIO_SPREAD = 0.9
"""Of the logarithm of the regions' ratios."""
_AT_TEAMS_HOME = 0.985
"""Of a team's tables."""
_IN_TEAM = 0.97
"""Of what a team's jobs read."""
_STORAGE_FACTOR = 2.6
"""Capacity over what is stored: room for replicas (§3.5)."""
_GREATEST_LINK = 0.02
"""Of all bytes, what a link carries in a day."""


def generate_warehouse(tables: int, regions: int, rng: np.random.Generator) -> Warehouse:
    """A warehouse with so many tables and regions. Raises ValueError for fewer than 10 tables, or regions out of [2, 63]."""
    if tables < 10:
        raise ValueError(f"a warehouse has at least 10 tables, not {tables}")
    if not 2 <= regions <= MOST_REGIONS:
        raise ValueError(f"a warehouse has 2 to {MOST_REGIONS} regions, not {regions}")
    teams = int(np.clip(tables // 500, 2 * regions, 800))
    team_of_table = np.sort(rng.choice(teams, tables, p=_uneven(teams, 0.8, rng)))
    readers = np.where(rng.random(tables) < _READ_SHARE, _drawn(_SHARING, tables, rng), 0.0).round().astype(np.int64)
    start, pairs, team_of_job = _read_pairs(team_of_table, readers, rng)
    ratios = _ratios(regions, rng)
    shares = _supply_shares(regions, rng)
    team_model = rng.choice(len(_GPU_MODELS), teams, p=[share for _, share, _ in _GPU_MODELS])
    team_region = np.array([rng.choice(regions, p=_normal(shares[model] * ratios)) for model in team_model.tolist()])
    home = np.where(
        rng.random(tables) < _AT_TEAMS_HOME, team_region[team_of_table], rng.integers(0, regions, tables)
    ).astype(np.int32)
    sizes = _drawn(_BYTES, tables, rng).astype(np.int64)
    jobs = _jobs(start, pairs, team_of_job, team_model, rng)
    names = [f"team{team:03d}.table{place:07d}" for place, team in enumerate(team_of_table.tolist())]
    made = Warehouse(
        _regions(regions, shares, ratios, jobs, sizes, home),
        Tables(names, sizes, home, np.zeros(tables, np.int64)),
        jobs,
    )
    return Warehouse(replace(made.regions, cpu_hours=_quotas(made)), made.tables, made.jobs)


def _quotas(warehouse: Warehouse) -> Floats:
    """(applications, regions) CPU hours: room for three fifths of an application in every region, and for what is there."""
    free = np.full((len(warehouse.regions.applications), warehouse.regions.count), np.inf)
    unlimited = Warehouse(replace(warehouse.regions, cpu_hours=free), warehouse.tables, warehouse.jobs)
    today = state_of(problem_of(unlimited, Goals()), warehouse.tables.home).cpu
    return np.asarray(np.maximum(today * 1.1, today.sum(axis=1, keepdims=True) * 0.6))


def _drawn(quantiles: tuple[tuple[float, float], ...], count: int, rng: np.random.Generator) -> Floats:
    """Numbers with these quantiles, exponential between them."""
    shares, values = zip(*quantiles, strict=True)
    return np.asarray(np.exp(np.interp(rng.random(count), shares, np.log(values))))


def _uneven(count: int, spread: float, rng: np.random.Generator) -> Floats:
    return _normal(np.exp(rng.normal(0.0, spread, count)))


def _normal(weights: Floats) -> Floats:
    return np.asarray(weights / weights.sum())


def _ratios(regions: int, rng: np.random.Generator) -> Floats:
    """High-priority demand over supply of each region before any plan: the greatest is the published one."""
    even = (np.arange(regions) + 0.5) / regions
    # Quantiles of a logistic distribution are near enough to those of a normal one, and need no table.
    raw = np.exp(_RATIO_SPREAD * np.log(even / (1.0 - even)) / 1.7)
    return np.asarray(rng.permutation(raw * (_HIGHEST_RATIO / raw.max())))


def _supply_shares(regions: int, rng: np.random.Generator) -> Floats:
    """(GPU models, regions) uneven, and nothing in some regions (Fig. 2)."""
    shares = np.zeros((len(_GPU_MODELS), regions))
    for model, (_, _, present) in enumerate(_GPU_MODELS):
        having = rng.permutation(regions)[: max(2, round(present * regions))]
        shares[model, having] = _uneven(len(having), 0.6, rng)
    return shares


def _read_pairs(
    team_of_table: Integers, readers: Integers, rng: np.random.Generator
) -> tuple[Integers, Indices, Integers]:
    """Which tables each job reads, so that each table has about its number of readers, and whose job it is."""
    table = np.repeat(np.arange(len(readers)), readers)
    team = team_of_table[table]
    elsewhere = rng.random(len(table)) >= _IN_TEAM
    team[elsewhere] = team_of_table[rng.integers(0, len(team_of_table), int(elsewhere.sum()))]
    order = np.lexsort((rng.random(len(table)), team))
    table, team = table[order], team[order]
    sizes = _drawn(_TABLES_PER_JOB, len(table) + 1, rng).astype(np.int64)
    ends = np.cumsum(sizes)
    job = np.searchsorted(ends, np.arange(len(table)), side="right")
    # A job belongs to one team: where the team changes, another job begins.
    job = np.cumsum(np.concatenate([[0], (np.diff(job) > 0) | (np.diff(team) > 0)])) if len(table) else job
    count = int(job[-1]) + 1 if len(job) else 0
    combined = np.sort(job * len(readers) + table)
    combined = combined[np.flatnonzero(np.diff(combined, prepend=-1))]
    job, table = combined // len(readers), combined % len(readers)
    start = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(job, minlength=count), out=start[1:])
    team_of_job = np.zeros(count, np.int64)
    # The first table of a job need not be its team's; most of them are.
    team_of_job[job] = team_of_table[table]
    return start, table.astype(np.int32), team_of_job


def _jobs(start: Integers, pairs: Indices, team: Integers, team_model: Integers, rng: np.random.Generator) -> Jobs:
    count = len(team)
    training = rng.random(count) < _TRAINING_SHARE
    other = rng.choice(len(_GPU_MODELS), count, p=[share for _, share, _ in _GPU_MODELS])
    model = np.where(rng.random(count) < 0.85, team_model[team], other)
    hours = _drawn(_GPU_HOURS, count, rng)
    return Jobs(
        names=[f"{'train' if trains else 'query'}{place:07d}" for place, trains in enumerate(training.tolist())],
        training=training,
        gpu_model=np.where(training, model, NOWHERE).astype(np.int32),
        priority=rng.choice(len(_PRIORITIES), count, p=_PRIORITY_SHARES).astype(np.int32),
        priorities=_PRIORITIES,
        gpu_hours=np.where(training, hours, 0.0),
        cpu_hours=np.where(training, 0.0, hours),
        application=np.where(training, NOWHERE, team % _APPLICATIONS).astype(np.int32),
        weight=np.ones(count),
        table_start=start,
        tables=pairs,
    )


_APPLICATIONS = 20


def _regions(
    count: int,
    shares: Floats,
    ratios: Floats,
    jobs: Jobs,
    sizes: Integers,
    home: Indices,
) -> Regions:
    """Supply so that the demand of today makes the ratios; storage and quotas so that today's placement is allowed."""
    high = jobs.training & (jobs.priority == 0)
    demand = np.bincount(jobs.gpu_model[high], weights=jobs.gpu_hours[high], minlength=len(_GPU_MODELS))
    meant = (shares * ratios).sum(axis=1)
    stored = np.bincount(home, weights=sizes, minlength=count)
    storage = np.maximum(_normal(shares.sum(axis=0) + 0.2) * stored.sum() * _STORAGE_FACTOR, stored * 1.1)
    return Regions(
        names=tuple(f"region{place:02d}" for place in range(count)),
        storage_bytes=np.floor(storage),
        gpu_models=tuple(name for name, _, _ in _GPU_MODELS),
        gpu_hours=shares * (demand / meant)[:, None],
        applications=tuple(f"application{place:02d}" for place in range(_APPLICATIONS)),
        link_bytes_per_day=(1.0 - np.eye(count)) * float(sizes.sum()) * _GREATEST_LINK,
    )
