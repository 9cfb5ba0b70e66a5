"""Sensitivity profiles come, are replaced, and stay for attempts that began with them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from domain.identifiers import WorkloadId
from domain.sensitivity import SensitivityProfile
from services.database import attempt_store, fleet_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.revision_store import load_revisions
from services.database.sensitivity_store import load_newest, load_since, store_profiles
from services.tuned_work import ProfileBook
from tests.database.small_world import EAST, FLEET, dispatch, new_attempt, submission, submit

W1 = WorkloadId("w000001")


def profile(speed: float) -> SensitivityProfile:
    return SensitivityProfile((1.0, 3.0), (10.0, 20.0, 40.0), ((0.5, 0.5, 0.5), (0.6, speed, speed)))


def in_one_transaction(database_url: str, story: Callable[[AnyConnection], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await story(connection)

    asyncio.run(scenario())


def test_profiles_come_back_unchanged_and_the_newest_holds(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        assert await store_profiles(connection, {"vgg": profile(1.0), "lstm": profile(0.9)}) == 1
        assert await store_profiles(connection, {"vgg": profile(1.0)}) == 1, "it was known"
        assert await store_profiles(connection, {"vgg": profile(2.0)}) == 2
        assert await load_newest(connection) == {"lstm": profile(0.9), "vgg": profile(2.0)}
        assert await load_newest(connection, ["vgg"]) == {"vgg": profile(2.0)}
        assert [(one.name, one.revision) for one in await load_since(connection, 1)] == [("vgg", 2)]
        assert (await load_revisions(connection)).profiles == 2

    in_one_transaction(database_url, story)


def test_a_profile_stays_for_as_long_as_an_attempt_goes_by_it(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        await fleet_store.apply_fleet(connection, FLEET)
        await submit(connection, [submission(1)])
        for speed in (1.0, 2.0):
            await store_profiles(connection, {"vgg": profile(speed)})
        await dispatch(connection, replace(new_attempt(W1), profiles_revision=2))
        (stored,) = await attempt_store.load_live(connection, EAST)
        assert stored.profiles_revision == 2
        for speed in (3.0, 4.0, 5.0):
            await store_profiles(connection, {"vgg": profile(speed)})
        kept = [one.revision for one in await load_since(connection, -1)]
        assert kept == [2, 3, 4, 5]
        await connection.execute("UPDATE attempts SET ended_s = 9000")
        await store_profiles(connection, {"vgg": profile(6.0)})
        assert [one.revision for one in await load_since(connection, -1)] == [5, 6]

    in_one_transaction(database_url, story)


def test_a_book_says_what_held_at_a_revision(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        for speed in (1.0, 2.0):
            await store_profiles(connection, {"vgg": profile(speed)})
        book = ProfileBook(await load_since(connection, -1))
        wanted = submission(1).specification
        labelled = replace(wanted, labels=(("model", "vgg"),))
        (job,) = labelled.jobs
        assert book.of_jobs(labelled, 0) == {}
        assert book.of_jobs(labelled, 1) == {job.name: profile(1.0)}
        assert book.of_jobs(labelled, 7) == {job.name: profile(2.0)}
        assert book.of_jobs(wanted, 7) == {}

    in_one_transaction(database_url, story)
