"""The document about the hot region: made from kept figures alone, and one run of a short window measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from scripts.results.hot_region import cases, measures
from scripts.results.hot_region.cases import LOADS, SEEDS, WAYS, Case, all_cases
from scripts.results.hot_region.document import document_of
from scripts.results.hot_region.measures import run_case


def test_every_way_is_run_with_every_seed_at_every_load() -> None:
    expected = {Case(*parts) for parts in product(LOADS, WAYS, SEEDS)}
    assert set(all_cases()) == expected
    assert len(all_cases()) == len(expected) > 0


def test_a_short_run_is_measured_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    short = {name: replace(asked, one_machine_in=10, before_s=900.0, window_s=7_200.0) for name, asked in LOADS.items()}
    monkeypatch.setattr(cases, "LOADS", short)
    monkeypatch.setattr(measures, "LOADS", short)
    run = run_case(Case("within quotas", "mast, compaction too", 1))
    assert isinstance(run["waits"], int)
    assert run["waits"] > 5
    assert isinstance(run["allocation"], float)
    assert 0.9 < run["allocation"] <= 1.0
    assert run == run_case(Case("within quotas", "mast, compaction too", 1))
    page = document_of(
        [{**run, "load": load, "way": way, "seed": seed} for load, way, seed in product(LOADS, WAYS, (1, 2))]
    )
    assert all(page.count(f"| {way} |") == len(LOADS) for way in WAYS)
    assert all(f"## Load {load}" in page for load in LOADS)
