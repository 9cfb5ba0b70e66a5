"""The page about Lyra: it is what its figures give, and its jobs are drawn the same in every run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from domain.identifiers import TenantId, WorkloadId
from formats.trace import TraceRow
from scripts.results.lyra.cases import (
    ELASTIC_LOAD,
    FROM_DAY,
    FUNGIBLE_LOAD,
    OPPORTUNISTIC,
    POLICIES,
    Case,
    all_cases,
    rows_of,
)
from scripts.results.lyra.document import document_of

RESULTS = Path(__file__).parents[2] / "docs" / "results"
ROWS = [
    TraceRow(WorkloadId(f"w{n:04}"), TenantId("t"), FROM_DAY * 86_400.0 + n, 7_200.0, (1, 2, 4, 8)[n % 4])
    for n in range(2_000)
]


def test_the_page_is_what_its_figures_give() -> None:
    kept = json.loads((RESULTS / "lyra" / "figures.json").read_text())
    assert (RESULTS / "lyra.md").read_text() == document_of(kept)
    assert [(run["section"], run["name"]) for run in kept] == [(case.section, case.name) for case in all_cases()]


def test_every_case_has_a_policy() -> None:
    assert {case.policy for case in all_cases()} <= set(POLICIES)


def load_of(rows: tuple[TraceRow, ...]) -> float:
    return sum(row.gpus * row.duration_s for row in rows)


def test_as_much_of_the_load_is_fungible_and_elastic_as_the_scenario_says() -> None:
    basic = rows_of(ROWS, Case("", "", "lyra"))
    fungible = tuple(row for row in basic if row.fungible)
    elastic = tuple(row for row in basic if row.max_tasks is not None)
    assert abs(load_of(fungible) / load_of(basic) - FUNGIBLE_LOAD) < 0.01
    assert abs(load_of(elastic) / load_of(basic) - ELASTIC_LOAD) < 0.01
    assert basic == rows_of(list(reversed(ROWS)), Case("", "", "lyra"))[::-1]
    ideal = rows_of(ROWS, Case("", "", "lyra", "Ideal"))
    assert all(row.fungible and row.max_tasks for row in ideal)


def test_opportunistic_jobs_run_on_inference_machines_only() -> None:
    given = rows_of(ROWS, Case("", "", OPPORTUNISTIC))
    assert {str(row.gpu_model) for row in given if row.fungible} == {"T4"}
    submitted = {row.workload_id: row for row in ROWS}
    assert all(row.gpus == (2 if row.fungible else 1) * submitted[row.workload_id].gpus for row in given)
    assert [replace(row, fungible=None).submit_s for row in given] == [row.submit_s for row in ROWS]
