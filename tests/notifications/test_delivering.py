"""Real deliveries over HTTP out of a real database, on a clock of the test's own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

from domain.clock import ManualClock
from domain.events import Event, EventKind, JsonValue
from domain.identifiers import WorkloadId
from domain.notification import Notification
from services.database import event_store, lease_store, notification_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import GLOBAL_LEASE, Lease, LeaseLost
from services.database.workload_store import NewWorkload, insert_submissions
from services.notifications.notifier import MADE_SECRET, Notifier
from services.notifications.send_failed import SendFailed
from services.notifications.sender import HttpSender
from services.notifications.settings import NotificationSettings
from services.notifications.signing import secret_at
from services.notifications.target_rules import TargetRules
from services.wire.workloads import specification_to_proto
from tests.database.small_world import ADS, TENANTS, specification
from tests.notifications.receiver import Receiver, Told, receiving

HERE = "127.0.0.1:1"
_Result = TypeVar("_Result")


class CountingDatabase(Database):
    """A database that knows how often it was asked what is due."""

    reads_of_due = 0

    async def run(
        self,
        operation: Callable[[AnyConnection], Awaitable[_Result]],
        *,
        snapshot: bool = False,
        give_up_after_s: float | None = None,
        waits_for_room: bool = True,
    ) -> _Result:
        self.reads_of_due += getattr(operation, "func", None) is notification_store.due
        return await super().run(
            operation, snapshot=snapshot, give_up_after_s=give_up_after_s, waits_for_room=waits_for_room
        )


@dataclass
class Telling:
    """A database with workloads, and somebody who tells of them."""

    database: CountingDatabase
    lease: Lease
    clock: ManualClock
    home: Path
    settings: NotificationSettings
    notifier: Notifier
    sender: HttpSender

    def another_notifier(self) -> Notifier:
        """As of a global scheduler that begins anew."""
        return Notifier(self.database, self.settings, self.home, real_time=self.clock.now, chance=lambda: 1.0)

    async def submit(self, workload: str, url: str, *events: str) -> None:
        wanted = replace(specification(), notify=Notification(url, events), labels=(("sweep", "b"),))
        serialized = specification_to_proto(wanted).SerializeToString()
        new = NewWorkload(WorkloadId(workload), wanted, serialized, 1.0)
        await self.database.run(lambda connection: insert_submissions(connection, [new]))

    async def happen(self, workload: str, *kinds: EventKind, **details: JsonValue) -> None:
        happened = [Event(7.0, kind, WorkloadId(workload), 1, ADS, details=details) for kind in kinds]
        await self.database.run(lambda connection: event_store.append(connection, happened))

    async def tell(self, notifier: Notifier | None = None) -> None:
        """Until nothing is due at this time."""
        one = notifier or self.notifier
        while not await one.find(self.lease):
            pass
        while await one.send_due(self.sender):
            pass

    async def state(self, workload: str) -> notification_store.NotificationState:
        name = WorkloadId(workload)
        return (await self.database.run(lambda connection: notification_store.states_of(connection, [name])))[name]


@asynccontextmanager
async def telling(url: str, home: Path, settings: NotificationSettings) -> AsyncIterator[Telling]:
    clock = ManualClock(1_000.0)
    async with CountingDatabase(url) as database:
        lease = await database.run(
            lambda connection: lease_store.acquire(connection, GLOBAL_LEASE, "test", HERE, 1, 3_600.0)
        )
        assert lease is not None
        from services.database import tenant_store

        await database.run(lambda connection: tenant_store.apply_tenants(connection, TENANTS))
        notifier = Notifier(database, settings, home, real_time=clock.now, chance=lambda: 1.0)
        async with notifier.sender(HERE) as sender:
            yield Telling(database, lease, clock, home, settings, notifier, sender)


def in_telling(
    url: str,
    home: Path,
    scenario: Callable[[Telling, Receiver], Awaitable[None]],
    settings: NotificationSettings | None = None,
) -> None:
    async def run() -> None:
        async with receiving() as receiver, telling(url, home, settings or NotificationSettings()) as world:
            await scenario(world, receiver)

    asyncio.run(run())


def events_of(told: list[Told]) -> list[str]:
    return [one.fields["event"] for one in told]


def test_what_happens_is_told_once_and_in_full(database_url: str, tmp_path: Path) -> None:
    async def scenario(world: Telling, receiver: Receiver) -> None:
        await world.submit("w-1", receiver.url("/hook?token=a"))
        await world.submit("w-2", receiver.url("/ends"), "ended")
        for workload in ("w-1", "w-2", "w-3"):
            await world.happen(workload, EventKind.RANKED, EventKind.DISPATCHED, EventKind.STARTED, placement=[{}])
        await world.happen("w-1", EventKind.EVICTED, cause="preempted", by="w-9", progress=4.0)
        await world.happen("w-2", EventKind.FAILED, final=True, reason="exit code 3", exit_code=3, progress=9)
        await world.tell()
        await world.tell()
        first, preempted, failed = sorted(receiver.told, key=lambda one: one.fields["workload"])
        assert [one.path for one in (first, preempted, failed)] == ["/hook?token=a", "/hook?token=a", "/ends"]
        assert preempted.fields == {
            "delivery": preempted.headers["Topmast-Delivery"],
            "event": "preempted",
            "time_s": 7.0,
            "workload": "w-1",
            "name": "night-run",
            "tenant": "ads",
            "labels": {"sweep": "b"},
            "attempt": 1,
            "region": None,
            "state": "PENDING",
            "reason": "",
            "cause": "preempted",
            "exit_code": None,
            "progress": 4.0,
        }
        assert (first.fields["event"], first.fields["state"]) == ("started", "RUNNING")
        assert (failed.fields["event"], failed.fields["state"]) == ("failed", "FAILED")
        assert (failed.fields["reason"], failed.fields["exit_code"]) == ("exit code 3", 3)
        state = await world.state("w-1")
        assert (state.delivered, state.waiting, state.given_up, state.error) == (2, 0, 0, "")

    in_telling(database_url, tmp_path, scenario)


def test_what_fails_is_sent_again_in_order_until_it_is_answered(database_url: str, tmp_path: Path) -> None:
    async def scenario(world: Telling, receiver: Receiver) -> None:
        receiver.statuses += [500, 302]
        await world.submit("w-1", receiver.url())
        await world.happen("w-1", EventKind.STARTED, EventKind.COMPLETED)
        await world.tell()
        state = await world.state("w-1")
        assert (state.waiting, state.error) == (2, "answered 500")
        assert (state.failing_since_real_s, state.due_real_s) == (1_000.0, 1_005.0)
        world.clock.advance_to(1_004.9)
        await world.tell()
        assert len(receiver.told) == 1
        world.clock.advance_to(1_005.0)
        await world.tell()
        assert (await world.state("w-1")).error == "answered 302; redirects are not followed"
        world.clock.advance_to(1_015.0)
        await world.tell(world.another_notifier())
        assert events_of(receiver.told) == ["started", "started", "started", "completed"]
        assert len({one.fields["delivery"] for one in receiver.told}) == 2
        assert [one.path for one in receiver.told] == ["/hook"] * 4
        # Each time it is signed anew: the time in it is that at which it was sent.
        times = [one.headers["Topmast-Signature"].partition(",")[0] for one in receiver.told]
        assert times == ["t=1000", "t=1005", "t=1015", "t=1015"]
        assert (await world.state("w-1")).failing_since_real_s is None

    in_telling(database_url, tmp_path, scenario)


def test_a_receiver_that_is_not_there_is_given_up_after_a_day(database_url: str, tmp_path: Path) -> None:
    async def scenario(world: Telling, receiver: Receiver) -> None:
        async with receiving() as gone:
            url = gone.url()
        assert url != receiver.url()
        await world.submit("w-1", url)
        await world.happen("w-1", EventKind.COMPLETED)
        await world.tell()
        tries = 1
        while (state := await world.state("w-1")).waiting:
            assert state.error == "refused the connection"
            assert state.due_real_s is not None
            world.clock.advance_to(state.due_real_s)
            await world.tell()
            tries += 1
        assert (state.given_up, state.delivered, state.error) == (1, 0, "refused the connection")
        assert tries > 20
        assert world.clock.now() <= 1_000.0 + 86_400.0

    in_telling(database_url, tmp_path, scenario)


def test_nothing_is_lost_between_an_event_and_its_delivery(database_url: str, tmp_path: Path) -> None:
    async def scenario(world: Telling, receiver: Receiver) -> None:
        await world.submit("w-1", receiver.url())
        # 1. It ends before it has read the log, and 2. when it has stored what is to be sent, and not sent it.
        await world.happen("w-1", EventKind.STARTED)
        second = world.another_notifier()
        await second.find(world.lease)
        # 3. It ends while the receiver has been told and has not answered.
        receiver.hold = asyncio.Event()
        third = world.another_notifier()
        sending = asyncio.ensure_future(third.send_due(world.sender))
        await receiver.until_told(1)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        receiver.hold.set()
        receiver.hold = None
        await world.happen("w-1", EventKind.COMPLETED)
        await world.tell(world.another_notifier())
        assert events_of(receiver.told) == ["started", "started", "completed"]
        assert receiver.told[0].headers["Topmast-Delivery"] == receiver.told[1].headers["Topmast-Delivery"]
        assert (await world.state("w-1")).delivered == 2

    in_telling(database_url, tmp_path, scenario)


def test_only_who_holds_the_lease_finds_anything(database_url: str, tmp_path: Path) -> None:
    async def scenario(world: Telling, receiver: Receiver) -> None:
        await world.submit("w-1", receiver.url())
        await world.happen("w-1", EventKind.COMPLETED)
        with pytest.raises(LeaseLost):
            await world.notifier.find(replace(world.lease, token=world.lease.token - 1))
        await world.tell()
        assert events_of(receiver.told) == ["completed"]

    in_telling(database_url, tmp_path, scenario)


def test_a_slow_receiver_delays_nobody_else(database_url: str, tmp_path: Path) -> None:
    async def scenario(world: Telling, receiver: Receiver) -> None:
        async with receiving() as slow:
            slow.hold = asyncio.Event()
            for number in range(12):
                await world.submit(f"w-slow-{number:02}", slow.url())
                await world.happen(f"w-slow-{number:02}", EventKind.COMPLETED)
            await world.submit("w-fast", receiver.url())
            await world.happen("w-fast", EventKind.STARTED, EventKind.COMPLETED)
            running = asyncio.ensure_future(world.notifier.run(world.lease, HERE))
            try:
                await receiver.until_told(2)
                await slow.until_told(4)
                # No more than that at a time, and none of them was answered.
                assert (await world.state("w-slow-00")).delivered == 0
                assert len(slow.told) == 4
                slow.hold.set()
                await slow.until_told(12)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    in_telling(database_url, tmp_path, scenario)


def test_what_waits_is_not_looked_through_for_each_that_is_sent(database_url: str, tmp_path: Path) -> None:
    """While a receiver that hangs has more waiting than may be sent to it at a time."""

    async def scenario(world: Telling, receiver: Receiver) -> None:
        async with receiving() as slow:
            slow.hold = asyncio.Event()
            names = [f"w-{number:02}" for number in range(90)]
            for number, name in enumerate(names):
                url = slow.url() if number % 3 == 0 else receiver.url()
                await world.submit(name, url)
                await world.happen(name, EventKind.STARTED, EventKind.COMPLETED)
            running = asyncio.ensure_future(world.notifier.run(world.lease, HERE))
            try:
                await receiver.until_told(120)
                assert len(slow.told) == 4
                assert world.database.reads_of_due <= 30
                slow.hold.set()
                await slow.until_told(60)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            for name in names:
                told = [one for one in (*receiver.told, *slow.told) if one.fields["workload"] == name]
                assert events_of(told) == ["started", "completed"]

    in_telling(database_url, tmp_path, scenario)


def test_who_does_not_answer_in_time_is_asked_again(database_url: str, tmp_path: Path) -> None:
    async def scenario(world: Telling, receiver: Receiver) -> None:
        receiver.hold = asyncio.Event()
        await world.submit("w-1", receiver.url())
        await world.happen("w-1", EventKind.COMPLETED)
        await world.tell()
        state = await world.state("w-1")
        assert (state.waiting, state.error) == (1, "did not answer in time")

    in_telling(database_url, tmp_path, scenario, NotificationSettings(timeout_real_s=0.2))


def test_names_that_nobody_resolves_hold_up_no_other_work(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same process, whose tiers all use the threads of its event loop."""
    released = threading.Event()

    async def scenario(world: Telling, _: Receiver) -> None:
        loop, asked = asyncio.get_running_loop(), asyncio.Event()

        def hanging(*_: object, **__: object) -> NoReturn:
            loop.call_soon_threadsafe(asked.set)
            released.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")

        loop.set_default_executor(ThreadPoolExecutor(1))
        for number in range(3):
            await world.submit(f"w-{number}", f"http://hangs-{number}.example/")
            await world.happen(f"w-{number}", EventKind.COMPLETED)
        await world.notifier.find(world.lease)
        # The secret is read in such a thread, too.
        await asyncio.to_thread(secret_at, tmp_path / MADE_SECRET)
        monkeypatch.setattr(socket, "getaddrinfo", hanging)
        try:
            sending = asyncio.ensure_future(world.notifier.send_due(world.sender))
            async with asyncio.timeout(60.0):
                await asked.wait()
                assert await asyncio.to_thread(lambda: "done") == "done"
            await sending
        finally:
            released.set()
        assert (await world.state("w-1")).error == "did not answer in time"

    in_telling(database_url, tmp_path, scenario, NotificationSettings(timeout_real_s=2.0))


def test_who_may_not_be_told_is_not(database_url: str, tmp_path: Path) -> None:
    async def scenario(world: Telling, receiver: Receiver) -> None:
        await world.submit("w-1", receiver.url())
        await world.submit("w-2", f"http://localhost:{receiver.port}/")
        await world.submit("w-3", "http://169.254.169.254/latest/meta-data")
        for workload in ("w-1", "w-2", "w-3"):
            await world.happen(workload, EventKind.COMPLETED)
        await world.tell()
        assert receiver.told == []
        for workload, given_up in (("w-1", 1), ("w-2", 0), ("w-3", 1)):
            state = await world.state(workload)
            assert (state.given_up, state.delivered) == (given_up, 0)
            assert "does not tell" in state.error

    in_telling(database_url, tmp_path, scenario, NotificationSettings(loopback=False))


@pytest.mark.parametrize(
    "host", ["127\u30020\u30020\u30021", "\uff11\uff12\uff17.0.0.1", "[::ffff:127.0.0.1]", "0x7f000001"]
)
def test_never_is_an_address_told_that_is_written_in_another_way(host: str) -> None:
    """The host that is judged is the one that is connected to."""

    async def scenario() -> None:
        async with receiving() as receiver, HttpSender(TargetRules((), (), loopback=False), 5.0) as sender:
            with pytest.raises(SendFailed, match="does not tell"):
                await sender.send(f"http://{host}:{receiver.port}/", b"{}", "d", "s")
            assert receiver.told == []

    asyncio.run(scenario())
