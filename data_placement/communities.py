"""Communities of tables that the same jobs read: what should stay together, and why a table is where it is.

Rule: the graph has an edge between tables that a job reads one after the other, weighted by the GPU hours of the jobs
(by one for a job without any), of a sample of the jobs: the heaviest ones up to a number of edges. Louvain's method
(Blondel et al., 2008) finds its communities; every other table joins the community with which it shares most readers.
"""

from __future__ import annotations

import math
from itertools import pairwise

import networkx as nx
import numpy as np

from data_placement.objective.problem import PlacementProblem
from domain.warehouse import Indices
from kernels.compiled import compiled

MOST_EDGES = 20_000
"""Of the sampled graph: Louvain's method takes a second or two."""
_MOST_TABLES_OF_A_JOB = 20
"""A job that reads more says little of what belongs together."""
_UNEVENNESS = 1e-4
"""By which part weights that would be equal differ."""
_GOLDEN_RATIO = (1.0 + math.sqrt(5.0)) / 2.0
"""Its multiples lie evenly between whole numbers, and no two alike."""
_SWEEPS = 3
"""Of joining; a table may be reached through another that has joined before."""


def communities_of(problem: PlacementProblem, seed: int) -> Indices:
    """(T,) the community of each table, from 0, the largest first; -1 for a table that is read with no other.

    The same seed gives the same communities.
    """
    label = np.full(len(problem.table_bytes), -1, np.int32)
    graph = sampled_graph(problem)
    if graph.number_of_edges() == 0:
        return label
    found = nx.community.louvain_communities(graph, weight="weight", seed=seed)
    for number, tables in enumerate(sorted(found, key=lambda tables: (-len(tables), min(tables)))):
        label[sorted(tables)] = number
    for _ in range(_SWEEPS):
        _join(problem, label, len(found))
    return _largest_first(label)


def sampled_graph(problem: PlacementProblem) -> nx.Graph[int]:
    """The tables that the heaviest jobs read together, no two edges with the same weight."""
    counts = np.diff(problem.table_start)
    jobs = np.flatnonzero((counts >= 2) & (counts <= _MOST_TABLES_OF_A_JOB))
    jobs = jobs[np.lexsort((jobs, -problem.gpu_hours[jobs]))]
    edges = np.cumsum(counts[jobs] - 1)
    weights: dict[tuple[int, int], float] = {}
    sampled = jobs[: int(np.searchsorted(edges, MOST_EDGES, side="right"))].tolist()
    # Louvain's method as networkx has it never ends where a table could be in either of two communities equally well and
    # rounding decides: it goes back and forth. No two sums of weights like these are equal.
    unevenness = 1.0 + _UNEVENNESS * (np.arange(len(sampled)) * _GOLDEN_RATIO % 1.0)
    for job, uneven in zip(sampled, unevenness.tolist(), strict=True):
        tables = problem.tables[problem.table_start[job] : problem.table_start[job + 1]].tolist()
        hours = max(1.0, float(problem.gpu_hours[job])) * uneven
        for place, pair in enumerate(pairwise(tables)):
            weights[pair] = weights.get(pair, 0.0) + hours * (1.0 + _UNEVENNESS * place)
    graph: nx.Graph[int] = nx.Graph()
    graph.add_weighted_edges_from((first, second, weight) for (first, second), weight in sorted(weights.items()))
    return graph


def _largest_first(label: Indices) -> Indices:
    sizes = np.bincount(label[label >= 0])
    rank = np.empty(len(sizes), np.int32)
    rank[np.lexsort((np.arange(len(sizes)), -sizes))] = np.arange(len(sizes), dtype=np.int32)
    return np.where(label >= 0, rank[np.maximum(label, 0)], np.int32(-1)).astype(np.int32)


@compiled
def _join(problem: PlacementProblem, label: Indices, count: int) -> None:
    """Tables without a community join the one that most of the tables read with them belong to, the first of several."""
    votes = np.zeros(count, np.int64)
    touched = np.zeros(count, np.int32)
    for table in range(len(label)):
        if label[table] >= 0:
            continue
        length = 0
        for place in range(problem.reader_start[table], problem.reader_start[table + 1]):
            job = problem.readers[place]
            for pair in range(problem.table_start[job], problem.table_start[job + 1]):
                other = label[problem.tables[pair]]
                if other >= 0:
                    if votes[other] == 0:
                        touched[length] = other
                        length += 1
                    votes[other] += 1
        best = -1
        for index in range(length):
            community = touched[index]
            if best < 0 or votes[community] > votes[best] or (votes[community] == votes[best] and community < best):
                best = community
        label[table] = best
        for index in range(length):
            votes[touched[index]] = 0
