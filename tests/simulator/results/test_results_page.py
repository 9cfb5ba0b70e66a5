"""docs/results-format.md tells every key that there is, and no other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from domain.events import JsonValue
from simulator.results.comparison import compare_runs
from simulator.results.figures import figures_of
from tests.simulator.results.small_runs import SmallRequest, asked_at_random, run_of

PAGE = (Path(__file__).parents[3] / "docs" / "results-format.md").read_text(encoding="utf-8")


def documented_keys(heading: str, table: int = 0) -> set[str]:
    """The keys in the first column of a section's table."""
    section = re.split(r"^##+ ", PAGE.split(f"{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    rows = [[line for line in block.splitlines() if line.startswith("|")] for block in section.split("\n\n")]
    cells = [line.split("|")[1] for line in [block for block in rows if block][table][2:]]
    return {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}


def objects(value: JsonValue) -> Sequence[Mapping[str, JsonValue]]:
    assert isinstance(value, dict)
    found = [element for element in value.values() if isinstance(element, dict)]
    assert found
    return found


def test_the_page_has_the_keys_of_figures_and_comparisons() -> None:
    def asked_now() -> list[SmallRequest]:
        return asked_at_random(np.random.default_rng(1), 200, load=1.2, gpus=32, greatest=8)

    runs = [run_of(asked_now()), run_of(asked_now(), policy="urgent")]
    figures = [figures_of(run) for run in runs]
    reported = figures[1].as_json()
    assert set(reported) == documented_keys("## Of a run")
    group_keys = documented_keys("### Of a group")
    for name in ("by_tenant", "by_priority", "by_gpus"):
        assert all(set(group) == group_keys - {"gpu_allocation_rate"} for group in objects(reported[name]))
    assert all(set(group) == group_keys for group in objects(reported["by_region"]))

    comparison = compare_runs(runs, figures, np.random.default_rng(1)).as_json()
    assert set(comparison) == documented_keys("## Of a comparison")
    pairs = comparison["pairs"]
    assert isinstance(pairs, list)
    assert isinstance(pairs[0], dict)
    assert set(pairs[0]) == documented_keys("## Of a comparison", 1)
    jobs = pairs[0]["top_winners"]
    assert isinstance(jobs, list)
    assert isinstance(jobs[0], dict)
    contrast = pairs[0]["jct_s"]
    assert isinstance(contrast, dict)
    spelled = set(re.findall(r"`(\w+)`", PAGE))
    for nested in (jobs[0], contrast, contrast["ratio"], reported["jct_s"]):
        assert isinstance(nested, dict)
        assert set(nested) <= spelled


def test_the_default_limits_are_those_of_the_page() -> None:
    limits = figures_of(run_of(asked_at_random(np.random.default_rng(1), 20, load=1, gpus=8, greatest=8))).slo_limits_s
    assert limits[0] == 600
    assert "1,200, 2,400, 4,800, 9,600, 19,200 and 38,400 s" in PAGE
    assert ", ".join(f"{limit:,.0f}" for limit in limits[1:-1]) + f" and {limits[-1]:,.0f} s" in PAGE
