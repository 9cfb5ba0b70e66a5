"""Runs of results that an interrupted call has written down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from domain.events import JsonValue
from scripts.results.written_down import WrittenDown


@dataclass(frozen=True)
class Case:
    load: float


def test_a_run_that_was_written_down_is_not_run_again(tmp_path: Path) -> None:
    path = tmp_path / "of" / "runs.jsonl"

    def first(case: Case) -> dict[str, JsonValue]:
        return {"load": case.load, "jct_s": 1.0}

    def second(case: Case) -> dict[str, JsonValue]:
        return {"load": case.load, "jct_s": 2.0}

    assert WrittenDown(path, first).run(Case(9.0)) == {"load": 9.0, "jct_s": 1.0}
    assert WrittenDown(path, second).run(Case(9.0)) == {"load": 9.0, "jct_s": 1.0}
    assert WrittenDown(path, second).run(Case(8.0)) == {"load": 8.0, "jct_s": 2.0}


def test_what_is_forgotten_is_run_again(tmp_path: Path) -> None:
    runs = WrittenDown[Case](tmp_path / "runs.jsonl", lambda case: {"load": case.load})
    runs.add(Case(1.0), {"load": 5.0})
    assert runs.run(Case(1.0)) == {"load": 5.0}
    runs.forget()
    assert runs.run(Case(1.0)) == {"load": 1.0}
