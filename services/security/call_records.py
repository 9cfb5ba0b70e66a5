"""Writes down what became of calls that are recorded; of refusals that did nothing, only so many of each caller."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict
from typing import Final

import grpc
import structlog

from services.database import audit_store
from services.database.audit_store import AuditEntry
from services.database.engine import Database
from services.database.errors import DatabaseFull, DatabaseUnavailable
from services.grpc_errors import CallRefused, StandsBy
from services.security.audit import AuditedCall
from services.security.principal import Principal
from services.security.refusal_records import RefusalRecords

_PATIENCE_REAL_S = 10.0

_MAY_HAVE_BEEN_DONE: Final = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNKNOWN,
    }
)
"""Refusals of callers who were let in, of which something may have been done all the same: each of them is written down."""

_log = structlog.get_logger(__name__)


class CallRecords:
    """Of one tier."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._refusals = RefusalRecords()

    async def begun(self, call: AuditedCall) -> None:
        """For a call that goes on for long: whatever becomes of this process, it is known that it was let in."""
        call.is_recorded = True
        await self._store(call.ended(audit_store.BEGUN))

    async def ended(self, call: AuditedCall, principal: Principal, refusal: CallRefused | None) -> None:
        """Writes down how the call ended, where that is not yet."""
        if refusal is None:
            if not call.is_recorded:
                await self._store(call.ended())
            return
        if call.is_recorded and refusal.code is grpc.StatusCode.CANCELLED:
            # Its record was in a transaction, with what it did: either both are there, or neither is.
            return
        # Who stands by has done nothing, and is asked again and again.
        may_be_done = refusal.code in _MAY_HAVE_BEEN_DONE and not isinstance(refusal, StandsBy)
        skipped = 0 if may_be_done else self._refusals.admit(principal)
        if skipped is None:
            return
        more = f" ({skipped} more refusals before this one were not recorded)" if skipped else ""
        await self._store(call.ended(refusal.code.name, f"{refusal.sentence}{more}"))

    async def _store(self, entry: AuditEntry) -> None:
        storing = asyncio.ensure_future(self._try_to_store(entry))
        try:
            await asyncio.shield(storing)
        except asyncio.CancelledError:
            # The caller leaves now: what was done is to have its record all the same.
            while not storing.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({storing})
            raise

    async def _try_to_store(self, entry: AuditEntry) -> None:
        try:
            await self._database.run(
                lambda connection: audit_store.append(connection, entry), give_up_after_s=_PATIENCE_REAL_S
            )
        except (DatabaseFull, DatabaseUnavailable) as error:
            # It was not done, or it was done elsewhere and cannot be undone: the log of the process has it.
            _log.error("an audit record could not be stored", error=str(error), **asdict(entry))
