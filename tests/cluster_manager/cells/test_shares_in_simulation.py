"""Simulations in which two tenants use what owners leave idle: by their weights, before and after an owner comes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.fleet import Fleet
from domain.identifiers import TenantId
from domain.tenant import Tenant
from formats.trace import TraceRow
from simulator.policies.registry import policies
from tests.cluster_manager.cells.test_cells_in_simulation import NONE, OWNERS, UNLIMITED, fleet
from tests.simulator.engine.checked_run import checked_run, row

WEIGHTS = ((TenantId("one"), 1.0), (TenantId("three"), 3.0))
JOB_S = 400.0


def divided() -> Fleet:
    """48 GPUs, of which `a` and `b` own all; whoever uses the rest has weights."""
    (region,) = fleet(*OWNERS).regions
    (cluster,) = region.clusters
    weighted = replace(cluster, cells=replace(cluster.cells, fair_share_weights=WEIGHTS))
    return Fleet((replace(region, clusters=(weighted,)),))


@pytest.mark.parametrize("gpus", [1, 2])
def test_opportunistic_use_converges_to_the_weights(gpus: int) -> None:
    rows: list[TraceRow] = []
    for name, _ in WEIGHTS:
        rows += [row(f"{name}{n:03}", float(n), JOB_S + n % 60, gpus, name) for n in range(240)]
    rows.append(row("owner", 1_000.0, 5_000.0, 16, "a"))
    tenants = [Tenant(TenantId(str(owner.virtual_cluster)), 0, UNLIMITED) for owner in OWNERS]
    tenants += [Tenant(name, 0, NONE, weight) for name, weight in WEIGHTS]
    run = checked_run(policies()["mast"], rows, divided(), tenants, check_every_events=50)
    use = {str(name): 0 for name, _ in WEIGHTS}
    seen: list[tuple[float, int, int]] = []
    for event in run.log:
        tenant, kind, t = str(event.get("tenant")), event["event"], event["t"]
        if tenant in use and kind in ("started", "completed", "evicted") and isinstance(t, float):
            use[tenant] += gpus if kind == "started" else -gpus
            seen.append((t, use["one"], use["three"]))
    settled = [(one, three) for t, one, three in seen if 900.0 < t < 1_000.0]
    after = [(one, three) for t, one, three in seen if 1_900.0 < t < 2_400.0]
    assert settled
    assert after
    for samples, total in ((settled, 48), (after, 32)):
        full = [(one, three) for one, three in samples if one + three == total]
        assert full
        assert all(abs(one - total / 4) <= 2 for one, _ in full)
