"""What users do with their workloads every day: limit them, hold them, send them back, change them. Emulated execution."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from domain.dependencies import dependency_of
from domain.workload import Emulated, RetryPolicy, WorkloadSpecification
from services.database.lease_store import GLOBAL_LEASE
from tests.live.running import PATIENCE_REAL_S, LiveRun, in_live_service, is_end
from tests.live.world import RANKING, V100, one_job
from topmast import Event, PreconditionError

pytestmark = pytest.mark.live

_LONG = Emulated(36_000.0, 60.0)
"""A minute of real time at the speed of these tests: nothing ends by itself."""


def _long(name: str, gpus: int = 8) -> WorkloadSpecification:
    return replace(one_job(name, RANKING, _LONG, gpus=gpus, model=V100), retry=RetryPolicy(max_retries=3))


def _of(run: LiveRun, kind: str, workload: str) -> list[Event]:
    return [event for event in run.events if (event.event, event.workload) == (kind, workload)]


def test_what_runs_for_too_long_is_stopped_also_when_every_tier_begins_anew(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        brief, longer = replace(_long("brief"), max_time_s=120.0), replace(_long("longer"), max_time_s=3_000.0)
        names = await run.submit([brief, longer])
        await run.follow(until=lambda _: all(_of(run, "started", name) for name in names))
        if not _of(run, "failed", names[0]):
            await run.until_event("failed", names[0])
        # Nobody is there to look when the other one reaches its limit; it is looked at afterwards.
        for tier in run.service.tiers:
            await run.service.stop(tier)
            await run.service.start(tier)
            await run.service.wait_until_held(run.database)
        await run.follow()
        for name, limit_s, words in ((names[0], 120.0, "2m"), (names[1], 3_000.0, "50m")):
            (evicting,) = _of(run, "evicting", name)
            (failed,) = _of(run, "failed", name)
            (started,) = _of(run, "started", name)
            assert evicting.details["cause"] == "time_limit"
            assert evicting.t - started.t >= limit_s
            assert failed.details["reason"] == f"time limit of {words} reached"
            assert float(str(failed.details["checkpoint_progress"])) >= limit_s
            ended = await run.client.get(name)
            assert (ended.state, ended.reason) == ("FAILED", f"time limit of {words} reached")
            assert [attempt.end for attempt in ended.attempts] == ["failed"]
        run.check()
        await run.check_nothing_is_left()

    in_live_service(database_url, tmp_path, scenario)


def test_a_workload_is_held_released_requeued_and_changed(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        client = run.client
        held, running, other = await run.submit([replace(_long("held"), hold=True), _long("running"), _long("other")])
        await run.follow(until=lambda _: bool(_of(run, "started", running) and _of(run, "started", other)))
        assert (await client.get(held)).reason == "held by its user, as submitted"
        with pytest.raises(PreconditionError, match="hold it with --requeue"):
            await client.hold([running])

        # Running, then held: it has saved its work, and waits until it is released.
        await client.hold([running], requeue=True, asked_by="ann")
        evicted = await run.until_event("evicted", running)
        assert (evicted.details["cause"], evicted.details["asked_by"]) == ("requeued", "ann")
        saved = float(str(evicted.details["checkpoint_progress"]))
        assert saved > 0
        waits = await client.get(running)
        assert (waits.state, waits.reason, waits.held_by) == ("PENDING", "held by ann", "ann")
        await client.change([running, held], labels={"sweep": "a"}, regions=["west"])
        await client.release([held, running])
        await run.follow(until=lambda _: len(_of(run, "started", running)) == 2 and bool(_of(run, "started", held)))
        assert _of(run, "started", running)[-1].details["progress"] == saved

        # Back to the queue by its user's wish, and on again from there.
        await client.requeue([other])
        await run.follow(until=lambda _: len(_of(run, "started", other)) == 2)
        assert [attempt.end for attempt in (await client.get(other)).attempts] == ["requeued", ""]

        # A limit that is shortened while it runs is reached by what has run already.
        await client.change([other], max_time_s=60.0)
        failed = await run.until_event("failed", other)
        assert failed.details["reason"] == "time limit of 1m reached"
        (again,) = await client.requeue([other])
        run.specifications[again.submitted_anew_as] = run.specifications[other]
        await run.until_event("started", again.submitted_anew_as)

        for now in await client.cancel_many([held, running, again.submitted_anew_as]):
            assert now.state in {"RUNNING", "DISPATCHED", "PREEMPTING"}
        await run.follow()
        run.check()
        await run.check_nothing_is_left()
        # Nobody was dispatched while it was held.
        assert not [event for event in run.events if event.event == "dispatched" and event.workload == held][1:]

    in_live_service(database_url, tmp_path, scenario)


def test_workloads_wait_for_others_also_when_these_end_while_the_global_tier_is_gone(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(run: LiveRun) -> None:
        brief = Emulated(600.0, 60.0)

        def named(name: str, *after: str) -> WorkloadSpecification:
            wanted = one_job(name, RANKING, brief, gpus=8, model=V100)
            return replace(wanted, after=tuple(map(dependency_of, after)))

        graph = [
            named("prepare"),
            replace(_long("too-long"), max_time_s=300.0),
            named("train", "ok:prepare"),
            named("alert", "failed:too-long"),
            named("never", "ok:too-long"),
            named("nor-this", "ok:never"),
            named("report", "any:never", "ok:train"),
        ]
        prepare, too_long, train, alert, never, nor_this, report = await run.submit(graph)
        await run.follow(until=lambda _: bool(_of(run, "started", prepare) and _of(run, "started", too_long)))
        await run.service.stop(GLOBAL_LEASE)
        await _until_ended(run, [prepare, too_long])
        assert await _unended(run, [train, alert, never]) == 3
        await run.service.start(GLOBAL_LEASE)
        await run.service.wait_until_held(run.database)
        await run.follow()
        assert (await run.client.get(never)).reason == f"ok:{too_long} can never be: it failed"
        assert (await run.client.get(nor_this)).reason == f"ok:{never} can never be: it was cancelled"
        for workload, others in ((train, [prepare]), (alert, [too_long]), (report, [train])):
            (dispatched,) = _of(run, "dispatched", workload)
            ends = [event for event in run.events if event.workload in others and is_end(event)]
            assert len(ends) == 1
            assert ends[0].sequence < dispatched.sequence
        run.check()
        await run.check_nothing_is_left()

    in_live_service(database_url, tmp_path, scenario)


async def _until_ended(run: LiveRun, workloads: Sequence[str]) -> None:
    """As the database has it: nobody answers calls meanwhile."""
    async with asyncio.timeout(PATIENCE_REAL_S):
        while True:
            if not await _unended(run, workloads):
                return
            await asyncio.sleep(0.05)


async def _unended(run: LiveRun, workloads: Sequence[str]) -> int:
    async with run.database.transaction() as connection:
        cursor = await connection.execute(
            "SELECT count(*) FROM workloads WHERE workload = ANY(%s) AND ended_s IS NULL", (list(workloads),)
        )
        (row,) = await cursor.fetchall()
    return int(row[0])
