"""However a session's loop ends, nobody waits for an answer for ever."""

from __future__ import annotations

import asyncio

import pytest

from domain.identifiers import JobName, MachineId, WorkloadId
from domain.machine_life_cycle import MachineHappening
from services.regional_scheduler.action_requests import ResizeRequest
from services.regional_scheduler.inbox import Inbox, MachineRequest
from services.regional_scheduler.session_over import SessionOver


def _drain() -> MachineRequest:
    evicted = asyncio.get_running_loop().create_future()
    return MachineRequest((MachineId("m"),), MachineHappening.DRAINED, "", False, evicted)


def _resize() -> ResizeRequest:
    plan = asyncio.get_running_loop().create_future()
    return ResizeRequest(workload=WorkloadId("w"), job=JobName("main"), tasks=2, plan=plan)


def test_never_leaves_a_request_unanswered_that_the_loop_had_taken_when_it_ended() -> None:
    async def scenario() -> None:
        inbox = Inbox()
        drains, resizes = [_drain(), _drain()], [_resize(), _resize()]
        for drain, resize in zip(drains, resizes, strict=True):
            inbox.request(drain)
            inbox.request_action(resize)
        assert inbox.take_machine_requests() == drains
        assert inbox.take_action_requests() == resizes
        drains[0].evicted.set_result([])
        inbox.close()
        assert drains[0].evicted.result() == []
        with pytest.raises(SessionOver):
            drains[1].evicted.result()
        for resize in resizes:
            with pytest.raises(SessionOver):
                resize.plan.result()

    asyncio.run(scenario())
