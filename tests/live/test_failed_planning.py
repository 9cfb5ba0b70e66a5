"""One workload whose planning raises waits and says so; its region goes on with all others, and with it once the error is gone."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
import structlog

from domain.workload import Emulated, Workload
from regional_scheduler import planner
from tests.live.running import PATIENCE_REAL_S, LiveRun, in_live_service
from tests.live.world import RESEARCH, V100, one_job
from tests.metrics.alert_rules import alert_rules
from tests.metrics.promql import Scrapes, evaluate

pytestmark = pytest.mark.live

_SHORT = Emulated(600.0, 60.0)
_ANOTHER = "w-of-somebody-else"


def test_a_region_outlives_what_it_cannot_plan(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planner._Planning.plan_anywhere

    def planted(planning: Any, workload: Workload) -> object:
        if workload.specification.name == "broken":
            raise ZeroDivisionError(f"beside {_ANOTHER}")
        return plan(planning, workload)

    async def scenario(run: LiveRun) -> None:
        scrapes = Scrapes()
        scrapes.scrape(run.service.metrics.registry, time.time())
        monkeypatch.setattr(planner._Planning, "plan_anywhere", planted)
        (broken,) = await run.submit([one_job("broken", RESEARCH, _SHORT, gpus=1, model=V100)])
        told = await run.until_event("waiting", broken)
        assert "'reason': 'planning_failed'" in str(told.details["diagnosis"])
        assert _ANOTHER not in str(told.details)
        failed = "topmast_failed_plans_total", {"region": "west"}
        async with asyncio.timeout(PATIENCE_REAL_S):
            while (run.service.metrics.registry.get_sample_value(*failed) or 0.0) < 3.0:
                # Whatever comes has the queue auctioned again.
                await run.submit([one_job("another", RESEARCH, _SHORT, gpus=1, model=V100)])
                await asyncio.sleep(0.1)
        others = await run.submit([one_job(f"other-{n}", RESEARCH, _SHORT, gpus=1, model=V100) for n in range(3)])
        await run.follow(until=lambda _: all(run.ended[name] for name in others))
        assert not run.ended[broken]
        position = (await run.client.get(broken)).queue_position
        assert position is not None
        assert position.diagnosis is not None
        assert (position.diagnosis.reason, position.diagnosis.region) == ("planning_failed", "west")
        async with asyncio.timeout(PATIENCE_REAL_S):
            while not evaluate(alert_rules()["TopmastPlanningFails"]["expr"], scrapes, time.time()):
                await asyncio.sleep(0.1)
                scrapes.scrape(run.service.metrics.registry, time.time())
        monkeypatch.setattr(planner._Planning, "plan_anywhere", plan)
        await run.follow()
        assert run.ended[broken] == 1
        assert run.count("invariant_broken") == 0

    with structlog.testing.capture_logs() as logs:
        in_live_service(database_url, tmp_path, scenario)
    [said] = [line for line in logs if line["event"].startswith("planning failed")]
    assert isinstance(said["exc_info"], ZeroDivisionError)
