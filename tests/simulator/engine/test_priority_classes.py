"""Priority classes in simulations: by the same scan pass as in the service."""

from __future__ import annotations

from dataclasses import replace

from simulator.baselines.mast import MAST
from tests.simulator.engine.checked_run import checked_run, one_region, row


def test_a_tenant_s_important_workloads_start_before_its_others_and_nobody_else_s() -> None:
    rows = [
        row("first", 0.0, 100.0, tenant="ads"),
        row("a-low", 1.0, 100.0, tenant="ads"),
        row("b-one", 2.0, 100.0, tenant="bio"),
        row("a-high", 3.0, 100.0, tenant="ads"),
        row("b-two", 4.0, 100.0, tenant="bio"),
    ]
    plain = checked_run(MAST, rows, one_region(1, 1)).starts()
    classes = {"a-low": "low", "a-high": "high"}
    classed = [replace(one, priority_class=classes.get(one.workload_id, "")) for one in rows]
    starts = checked_run(MAST, classed, one_region(1, 1)).starts()
    assert plain["a-low"] < plain["a-high"]
    assert starts["a-high"] < starts["a-low"]
    for theirs in ("b-one", "b-two", "first"):
        assert starts[theirs] <= plain[theirs]
