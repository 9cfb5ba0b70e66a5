"""Workloads of one submission that wait for each other by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.dependencies import dependency_of
from domain.identifiers import TenantId, WorkloadId
from domain.workload import WorkloadSpecification
from global_scheduler.submitted_graph import SubmittedGraph, read_graph


def graph(*submitted: tuple[str, str], tenants: str = "") -> SubmittedGraph:
    """Of (name, what it waits for), with the ids w-0, w-1, ..."""
    return read_graph(
        [
            (
                WorkloadId(f"w-{number}"),
                replace(
                    WorkloadSpecification(name, TenantId(tenants[number] if tenants else "a"), ()),
                    after=tuple(map(dependency_of, after.split())),
                ),
            )
            for number, (name, after) in enumerate(submitted)
        ]
    )


def test_names_become_ids_and_ids_stay() -> None:
    found = graph(("train", "ok:prepare any:w-old"), ("prepare", ""), ("report", "failed:train"))
    assert found.problems == ()
    assert [[str(one) for one in after] for after in found.after] == [["ok:w-1", "any:w-old"], [], ["failed:w-0"]]


@pytest.mark.parametrize(
    ("submitted", "tenants", "number", "field", "words"),
    [
        ((("a", "ok:a"),), "", 0, "after[0]", "nothing could ever start: a after a"),
        ((("x", "ok:y"), ("c", "ok:a"), ("a", "any:b ok:y"), ("b", "ok:c"), ("y", "")), "", 1, "after[0]", "c after a after b after c"),
        ((("a", ""), ("a", ""), ("b", "ok:a")), "", 2, "after[0]", "2 workloads here are named a"),
        ((("a", ""), ("b", "ok:a")), "xy", 1, "after[0]", "is of tenant x"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_place(
    submitted: tuple[tuple[str, str], ...], tenants: str, number: int, field: str, words: str
) -> None:
    ((found, problem),) = graph(*submitted, tenants=tenants).problems
    assert (found, problem.field) == (number, field)
    assert words in problem.description
