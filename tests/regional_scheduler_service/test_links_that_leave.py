"""A cluster leaves its region: however its link ends, the links to the others go on."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import structlog

from domain.fleet import Region
from domain.identifiers import ClusterId
from services.database.lease_store import Lease
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.live_attempts import RegionAttempts
from services.regional_scheduler.order_sender import OrderSender
from tests.cluster_manager.fleets import cluster, gpu_machine, region

WHOLE = region(*(cluster(name, [gpu_machine(f"{name}-m")]) for name in ("gone", "stays", "new")))


def only(*names: str) -> Region:
    return replace(WHOLE, clusters=tuple(one for one in WHOLE.clusters if one.cluster in names))


@pytest.mark.parametrize("ends", ["at once", "with an error", "after a while"])
def test_the_others_go_on(ends: str) -> None:
    asked: dict[str, asyncio.Event] = {str(one.cluster): asyncio.Event() for one in WHOLE.clusters}
    may_end = asyncio.Event()

    async def find_address(asked_of: ClusterId) -> str | None:
        asked[asked_of].set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if asked_of == "gone" and ends == "with an error":
                raise RuntimeError("as it leaves") from None
            if asked_of == "gone" and ends == "after a while":
                await may_end.wait()
            raise
        return None

    async def scenario() -> None:
        lease = Lease("regional/here", "me", 1)
        sender = OrderSender(
            only("gone", "stays"), RegionAttempts(), DueAttempts(), find_address, lambda _: None, lease
        )
        running = asyncio.create_task(sender.run())
        async with asyncio.timeout(60.0):
            await asked["gone"].wait()
            await asked["stays"].wait()
            sender.clusters_changed(only("stays", "new"))
            await asked["new"].wait()
            may_end.set()
            for _ in range(10):
                await asyncio.sleep(0)
            assert not running.done()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with structlog.testing.capture_logs() as logs:
        asyncio.run(scenario())
    failed = [line["cluster"] for line in logs if line["event"] == "a link failed as it left"]
    assert failed == (["gone"] if ends == "with an error" else [])
