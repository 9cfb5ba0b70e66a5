"""A URL is told of what happens to a workload by a whole service, whose global tier is killed meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from domain.notification import Notification
from domain.workload import Emulated
from services.notifications.notifier import MADE_SECRET
from services.notifications.signing import signature
from tests.live.running import LiveRun, in_live_service
from tests.live.world import RANKING, V100, one_job
from tests.notifications.receiver import receiving

pytestmark = pytest.mark.live


def test_a_url_is_told_also_when_the_global_scheduler_is_killed(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        async with receiving() as receiver:
            secret_path = receiver.url("/hook?token=hunter2").replace("http://", "http://user:hunter2@")
            wanted = replace(
                one_job("told", RANKING, Emulated(1_200.0, 60.0), gpus=8, model=V100),
                notify=Notification(secret_path),
                labels=(("sweep", "b"),),
            )
            # Nothing is answered: so nothing else is told before it is killed.
            receiver.hold = asyncio.Event()
            (name,) = await run.submit([wanted])
            await receiver.until_told(1)
            await run.service.stop("global")
            receiver.hold.set()
            # It ends while nobody is there who could tell.
            async with run.database.listen("topmast_events") as subscription:
                while True:
                    async with run.database.transaction() as connection:
                        cursor = await connection.execute("SELECT state FROM workloads WHERE workload = %s", (name,))
                        if await cursor.fetchone() == ("COMPLETED",):
                            break
                    await subscription.wait(1.0)
            assert len(receiver.told) == 1
            await run.service.start("global")
            await run.service.wait_until_held(run.database)
            started, again, completed = await receiver.until_told(3)
            assert started.fields == again.fields
            assert (started.fields["event"], started.fields["state"]) == ("started", "RUNNING")
            assert (completed.fields["event"], completed.fields["workload"]) == ("completed", name)
            assert completed.fields["labels"] == {"sweep": "b"}
            assert completed.path == "/hook?token=hunter2"
            secret = (tmp_path / MADE_SECRET).read_bytes().strip()
            for told in (started, completed):
                signed = told.headers["Topmast-Signature"]
                sent_real_s = float(signed.partition(",")[0].removeprefix("t="))
                assert signed == signature(secret, told.body, sent_real_s)
            while (shown := await run.client.get(name)).notification is None or shown.notification.delivered < 2:  # noqa: ASYNC110 - deliveries are no events
                await asyncio.sleep(0.05)
            assert shown.notification.host == f"127.0.0.1:{receiver.port}"
            # What may be a secret is nowhere to be seen.
            assert shown.specification.notify is not None
            assert shown.specification.notify.url == f"http://127.0.0.1:{receiver.port}/..."
            (listed,) = [one async for one in run.client.list(limit=10)]
            assert "hunter2" not in repr((shown, listed))
            async for event in run.client.events(follow=False):
                assert "hunter2" not in repr(event)

    in_live_service(database_url, tmp_path, scenario)
