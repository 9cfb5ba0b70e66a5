"""What becomes of calls is written down, though their callers try to have it passed over."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from services.database import audit_store
from services.database.audit_store import AuditFilter
from services.database.engine import Database
from services.grpc_errors import CallRefused, InvalidArgument, StandsBy, Unavailable
from services.security.audit import begin_audit
from services.security.call_records import CallRecords
from services.security.principal import Principal, PrincipalKind
from services.security.refusal_records import AT_ONCE
from services.security.roles import Role
from tests.database.small_world import until_somebody_waits

_MALLORY = Principal("mallory", Role.OPERATOR, None, PrincipalKind.TOKEN, "m")


def test_never_do_refusals_hide_what_may_have_been_done(database_url: str) -> None:
    """Half of a drain, say: one region has done it, another one is away."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            records = CallRecords(database)

            async def refused(refusal: CallRefused) -> None:
                await records.ended(begin_audit("/topmast/Drain", None, _MALLORY, ()), _MALLORY, refusal)

            for _ in range(AT_ONCE + 3):
                await refused(InvalidArgument.of("names", "are none"))
            await refused(StandsBy("global scheduler", None))
            await refused(Unavailable("it is done in east, but region west says: it is away"))
            await refused(CallRefused(grpc.StatusCode.CANCELLED, "broken off"))
            found = await database.run(lambda connection: audit_store.load(connection, AuditFilter(), 3))
            assert [one.entry.outcome for one in found] == ["CANCELLED", "UNAVAILABLE", "INVALID_ARGUMENT"]

    asyncio.run(scenario())


def test_a_record_is_written_however_often_its_call_is_cancelled(database_url: str) -> None:
    """By its caller, who leaves, and then by the server, which stops."""

    async def scenario() -> None:
        async with Database(database_url) as database, Database(database_url) as other:
            records = CallRecords(database)
            async with other.transaction() as holding:
                await holding.execute("LOCK TABLE audit_log IN EXCLUSIVE MODE")
                record = records.ended(begin_audit("/topmast/Drain", None, _MALLORY, ()), _MALLORY, None)
                writing = asyncio.ensure_future(record)
                await until_somebody_waits(other)
                for _ in range(2):
                    writing.cancel()
                    await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await writing
            found = await database.run(lambda connection: audit_store.load(connection, AuditFilter(), 3))
            assert len(found) == 1

    asyncio.run(scenario())
