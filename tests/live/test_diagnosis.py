"""Why a workload waits, from the planner to the command line: on PostgreSQL, through every tier."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from domain.workload import Emulated
from services.command_line.main import app
from services.command_line.wording import moment
from tests.live.running import PATIENCE_REAL_S, LiveRun, in_live_service
from tests.live.world import RESEARCH, V100, VISION, one_job
from topmast import Diagnosis

pytestmark = pytest.mark.live

_LONG = Emulated(1e6, 60.0)
_WIDE = {"COLUMNS": "400"}


async def _diagnosis(run: LiveRun, workload: str) -> Diagnosis:
    """Why it waits, as stored."""
    async with asyncio.timeout(PATIENCE_REAL_S):
        while True:
            position = (await run.client.get(workload)).queue_position
            if position is not None and position.diagnosis is not None:
                return position.diagnosis


async def _printed(run: LiveRun, *arguments: str) -> str:
    """What the command prints."""
    runner = CliRunner(env={"TOPMAST_ADDRESS": run.service.address, **_WIDE})
    result = await asyncio.to_thread(runner.invoke, app, list(arguments))
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def test_a_waiting_workload_says_why_with_numbers_where_and_since_when(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        (holder,) = await run.submit([one_job("holder", VISION, _LONG, gpus=8, tasks=3, model=V100)])
        await run.until_event("started", holder)
        (waiting,) = await run.submit([one_job("waiting", RESEARCH, _LONG, gpus=8, tasks=2, model=V100)])
        told = await run.until_event("waiting", waiting)
        diagnosis = await _diagnosis(run, waiting)
        assert (diagnosis.reason, diagnosis.region, diagnosis.cluster, diagnosis.job) == (
            "no_room",
            "west",
            "west-a",
            "main",
        )
        assert [(one.quantity, one.asked, one.available) for one in diagnosis.numbers] == [("tasks", 2, 0)]
        assert diagnosis.since_s is not None
        assert diagnosis.since_s <= told.t
        since = f"since {moment(diagnosis.since_s)}"
        words = f"no_room: 0 of 2 tasks, in west/west-a, job main, {since}"
        assert words in await _printed(run, "get", waiting)
        assert words in await _printed(run, "queue")
        # What the region remembers is told of another workload, too, with its own numbers.
        (larger,) = await run.submit([one_job("larger", RESEARCH, _LONG, gpus=8, tasks=3, model=V100)])
        await run.until_event("waiting", larger)
        assert "no_room: 0 of 3 tasks, in west/west-a, job main, since" in await _printed(run, "get", larger)
        # Later passes find the same: it has been so since then.
        assert (await _diagnosis(run, waiting)).since_s == diagnosis.since_s
        for one in (holder, waiting, larger):
            await run.client.cancel(one)
        await run.follow()
        run.check()

    in_live_service(database_url, tmp_path, scenario)
