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
from tests.live.world import PLAYGROUND, RESEARCH, V100, VISION, one_job
from topmast import Diagnosis, Preemptor

pytestmark = pytest.mark.live

_LONG = Emulated(1e6, 60.0)
_WIDE = {"COLUMNS": "400"}
_HELD_BY_ANOTHER = "other tenants, priority 2: 24 GPUs in 1 workload"


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
        assert words in await _printed(run, "queue")
        assert words in await _printed(run, "list")
        # Region by region, each once: one has no such GPUs, in the other another tenant, whose workloads have no names here, holds them.
        shown = await _printed(run, "get", waiting)
        assert f"west west-a no_room 0 of 2 tasks, job main {moment(diagnosis.since_s)} {_HELD_BY_ANOTHER}" in shown
        assert "east - no_such_gpu_model" in shown
        assert (shown.count("no_room"), "No region has room" in shown, holder in shown) == (1, False, False)
        own = await run.submit([one_job("own", VISION, _LONG, gpus=8, tasks=2, model=V100)])
        await run.until_event("waiting", own[0])
        assert f"{holder} (holder) 24 GPUs" in await _printed(run, "get", own[0])
        # What the region remembers is told of another workload, too, with its own numbers.
        (larger,) = await run.submit([one_job("larger", RESEARCH, _LONG, gpus=8, tasks=3, model=V100)])
        await run.until_event("waiting", larger)
        assert "no_room: 0 of 3 tasks, in west/west-a, job main, since" in await _printed(run, "queue")
        # Later passes find the same: it has been so since then.
        assert (await _diagnosis(run, waiting)).since_s == diagnosis.since_s
        # A machine that takes no work is one of those that would do.
        drained = (await anext(run.client.machines(region="west", gpu_model=V100))).machine
        await run.client.drain(drained, within_s=1e6)
        assert f"{_HELD_BY_ANOTHER}; 1 machine with 8 GPUs drained" in await _printed(run, "get", waiting)
        await run.client.undrain(drained)
        assert "drained" not in await _printed(run, "get", waiting)
        for one in (holder, waiting, larger, *own):
            await run.client.cancel(one)
        await run.follow()
        run.check()

    in_live_service(database_url, tmp_path, scenario)


def test_who_was_preempted_by_whom_and_why_it_was_cancelled_is_kept(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        (victim,) = await run.submit([one_job("victim", PLAYGROUND, _LONG, gpus=8, tasks=3, model=V100)])
        await run.until_event("started", victim)
        (winner,) = await run.submit([one_job("winner", VISION, _LONG, gpus=8, tasks=3, model=V100)])
        await run.until_event("started", winner)
        (attempt,) = (await run.client.get(victim)).attempts
        assert attempt.end == "preempted"
        assert attempt.preempted_by == Preemptor("", "", 2, 0)
        assert "by a workload of another tenant, priority 2" in await _printed(run, "get", victim)
        await run.client.cancel(winner, "wrong data")
        cancelled = await run.until_event("cancelled", winner)
        assert cancelled.details["reason"] == "wrong data"
        ended = await run.client.get(winner)
        assert (ended.state, ended.reason, ended.attempts[-1].end_reason) == ("CANCELLED", "wrong data", "wrong data")
        assert "wrong data" in await _printed(run, "list")
        await run.client.cancel(victim)
        await run.follow()
        run.check()

    in_live_service(database_url, tmp_path, scenario)
