"""An array runs: never more of its elements at once than may be, whatever ends and whatever is done to it. Emulated."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from domain.workload import Emulated
from services.wire.workloads import specification_to_proto
from tests.live.running import LiveRun, in_live_service, is_end
from tests.live.world import RANKING, V100, one_job
from topmast import Event, WorkloadState

pytestmark = pytest.mark.live

_AT_MOST = 3


def _most_active(events: list[Event], elements: frozenset[str]) -> int:
    """The most that were in the queue or live at one time, by what the log says of each."""
    active: set[str] = set()
    most = 0
    for event in events:
        name = event.workload or ""
        if name not in elements:
            continue
        if event.event in {"submitted", "released"}:
            active.add(name)
        if event.event == "held" or is_end(event):
            active.discard(name)
        # What is submitted is told to wait in the same transaction.
        if event.event not in {"submitted", "held"}:
            most = max(most, len(active))
    return most


def test_an_array_runs_a_few_at_a_time_also_when_the_global_scheduler_begins_anew(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(run: LiveRun) -> None:
        client = run.client
        said = replace(one_job("sweep", RANKING, Emulated(120.0), gpus=1, model=V100), array=f"0-11%{_AT_MOST}")
        submission = await client.submit(specification_to_proto(said))
        array = submission.workload
        elements = frozenset(f"{array}-{index:06}" for index in range(12))
        run.specifications.update(dict.fromkeys(elements, said))

        await run.follow(until=is_end)
        (tier,) = (one for one in run.service.tiers if one.startswith("global"))
        await run.service.stop(tier)
        host, _, port = run.service.address.rpartition(":")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            # A connection of another process, which takes any port, does not keep the tier from coming back.
            other.bind((host, int(port)))
        await run.service.start(tier)
        await run.service.wait_until_held(run.database)
        await client.cancel(f"{array}[11]", "not this one")
        await run.follow()

        ended = await client.wait(array)
        assert ended.elements is not None
        assert sum(ended.elements.states.values()) == ended.elements.size == 12
        assert ended.elements.states[WorkloadState.COMPLETED] >= 11
        assert ended.ended_s is not None
        assert 0 < _most_active(run.events, elements) <= _AT_MOST
        assert run.count("dispatched") >= 11
        run.check()
        await run.check_nothing_is_left()
        listed = [workload async for workload in client.list(expand_arrays=True)]
        assert {workload.array_index for workload in listed} == set(range(12))
        assert [workload.workload async for workload in client.list()] == [array]

    in_live_service(database_url, tmp_path, scenario)
