"""Long work on an event loop lets others have their turns."""

import asyncio
import time

from services.tiers.turns import Turns


def test_others_go_on_while_long_work_is_done() -> None:
    seen: list[int] = []

    async def others() -> None:
        while True:
            seen.append(len(done))
            await asyncio.sleep(0)

    async def work() -> None:
        turns = Turns()
        for step in range(10):
            began_s = time.monotonic()
            while time.monotonic() - began_s < 0.011:
                pass
            done.append(step)
            await turns.give_way()

    async def scenario() -> None:
        beside = asyncio.ensure_future(others())
        await work()
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)

    done: list[int] = []
    asyncio.run(scenario())
    assert seen == list(range(1, 11))


def test_short_work_is_not_interrupted() -> None:
    async def scenario() -> None:
        woken = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(woken.set_result, None)
        await Turns().give_way()
        assert not woken.done()

    asyncio.run(scenario())
