"""Workloads of one submission that wait for each other, by name: who is meant, and that nobody waits for itself in the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import networkx as nx

from domain.dependencies import Dependency
from domain.identifiers import WorkloadId
from domain.workload import WorkloadSpecification
from formats.problems import FieldProblem

GREATEST_GRAPH_DEPENDENCIES = 10_000
"""Of all workloads of one submission together: to read them holds the event loop of a service up."""
_NAMED = 8
"""Workloads of a cycle that are spelled."""


@dataclass(frozen=True, slots=True)
class SubmittedGraph:
    """What each of them waits for, by ids; and what is wrong, by the number of the workload."""

    after: tuple[tuple[Dependency, ...], ...]
    problems: tuple[tuple[int, FieldProblem], ...]


def read_graph(submitted: Sequence[tuple[WorkloadId, WorkloadSpecification]]) -> SubmittedGraph:
    """With the ids of those that are named. What is no name here is left as it is: an id, perhaps."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, (_, specification) in enumerate(submitted):
        numbers[specification.name].append(number)
    total = 0
    for number, (_, specification) in enumerate(submitted):
        total += len(specification.after)
        if total > GREATEST_GRAPH_DEPENDENCIES:
            described = f"brings more than the {GREATEST_GRAPH_DEPENDENCIES} dependencies that workloads of one submission may have"
            return SubmittedGraph((), ((number, FieldProblem("after", described)),))
    after: list[tuple[Dependency, ...]] = []
    problems: list[tuple[int, FieldProblem]] = []
    graph: nx.DiGraph[int] = nx.DiGraph()
    for number, (_, specification) in enumerate(submitted):
        known: list[Dependency] = []
        for position, dependency in enumerate(specification.after):
            named = numbers.get(dependency.workload, ())
            problem = _problem(dependency, specification, [submitted[other][1] for other in named])
            if problem is not None:
                problems.append((number, FieldProblem(f"after[{position}]", problem)))
            elif named:
                graph.add_edge(number, named[0])
                known.append(replace(dependency, workload=submitted[named[0]][0]))
            else:
                known.append(dependency)
        after.append(tuple(known))
    if not problems and (cycle := _cycle(graph)):
        first = submitted[cycle[0]][1]
        position = [one.workload for one in first.after].index(submitted[cycle[1]][1].name)
        names = [submitted[number][1].name for number in cycle]
        if len(names) > _NAMED:
            names = [*names[: _NAMED - 1], f"... ({len(names) - _NAMED} more)", names[-1]]
        spelled = " after ".join(names)
        described = f"makes a cycle, in which nothing could ever start: {spelled}"
        problems.append((cycle[0], FieldProblem(f"after[{position}]", described)))
    return SubmittedGraph(tuple(after), tuple(problems))


def _problem(
    dependency: Dependency, waiting: WorkloadSpecification, named: Sequence[WorkloadSpecification]
) -> str | None:
    if len(named) > 1:
        return f"is {dependency}, but {len(named)} workloads here are named {dependency.workload}; name them apart"
    if named and named[0].tenant != waiting.tenant:
        return f"is {dependency}, which is of tenant {named[0].tenant}; workloads wait for those of their own tenant"
    return None


def _cycle(graph: nx.DiGraph[int]) -> list[int]:
    """The numbers around a cycle, the first of them again at the end; empty without any."""
    if nx.is_directed_acyclic_graph(graph):
        return []
    # Within one of its knots: to look for a cycle in all of it takes time that grows with the square of its size.
    knots = [knot for knot in nx.strongly_connected_components(graph) if len(knot) > 1]
    knots += [{number} for number in nx.nodes_with_selfloops(graph)]
    around = [edge[0] for edge in nx.find_cycle(graph.subgraph(min(knots, key=min)))]
    # From the first of them, so that the same file is always told the same.
    start = around.index(min(around))
    around = around[start:] + around[:start]
    return [*around, around[0]]
