"""Limits of running workloads in a simulation."""

from dataclasses import replace

from domain.identifiers import ANY_GPU_MODEL
from domain.resources import Quota
from domain.tenant import Tenant
from domain.tenant_limits import TenantLimits
from simulator.baselines.mast import MAST
from tests.simulator.engine.checked_run import checked_run, one_region, row

FLEET = one_region(4, 8)
ROWS = tuple(row(f"w{number}", float(number), 1_000.0, 8) for number in range(4))
TEAM = Tenant(ROWS[0].tenant, 1, Quota.of({ANY_GPU_MODEL: 32}))


def test_no_more_run_than_may_although_there_is_room() -> None:
    free = checked_run(MAST, ROWS, FLEET, (TEAM,)).starts()
    assert max(free.values()) < 1_000.0
    limited = replace(TEAM, limits=TenantLimits(max_running=2))
    starts = sorted(checked_run(MAST, ROWS, FLEET, (limited,)).starts().items(), key=lambda item: item[1])
    assert [name for name, _ in starts] == ["w0", "w1", "w2", "w3"]
    assert starts[1][1] < 1_000.0
    assert starts[2][1] >= starts[0][1] + 1_000.0
    assert starts[3][1] >= starts[1][1] + 1_000.0
