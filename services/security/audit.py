"""What is written down of a call while it is answered: who asked for what, how it was before, and how it ended.

A call that writes to the database has its record in the same transaction (`audited`); what was refused, and what happens elsewhere,
is recorded when it has ended. So there is nothing done without a record, and no record of what was not done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeVar

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from services.database import audit_store
from services.database.audit_store import AuditEntry
from services.database.connection import AnyConnection
from services.security.principal import Principal
from services.security.secret_texts import without_passwords, without_passwords_within

_Result = TypeVar("_Result")

_LARGEST_KEPT_BYTES = 65_536
"""Of what was asked for; of more its size and its SHA-256 are kept."""

_LONGEST_REASON = 1_000


class AuditedCall:
    """One that is under way."""

    __slots__ = ("before", "entry", "is_put_off", "is_recorded")

    def __init__(self, entry: AuditEntry) -> None:
        self.entry = entry
        self.before: Mapping[str, Any] | None = None
        self.is_recorded = False
        """In a transaction that has been committed, or is about to be."""
        self.is_put_off = False
        """The present transaction does not do it."""

    def ended(self, outcome: str = audit_store.DONE, reason: str = "") -> AuditEntry:
        """The record of it."""
        reason = without_passwords(reason)[:_LONGEST_REASON]
        before = None if self.before is None else without_passwords_within(self.before)
        return replace(self.entry, outcome=outcome, reason=reason, before=before)


_PRESENT: ContextVar[AuditedCall | None] = ContextVar("audited_call", default=None)


def begin_audit(method: str, request: Message | None, principal: Principal, subjects: Sequence[str]) -> AuditedCall:
    """From now on this task answers a call that is recorded. `method`: its path."""
    call = AuditedCall(
        AuditEntry(
            principal.name,
            principal.role.value,
            principal.kind.value,
            principal.credential,
            method.rpartition("/")[2],
            tuple(map(without_passwords, subjects)),
            after=None if request is None else _document(request),
        )
    )
    _PRESENT.set(call)
    return call


def present_audit() -> AuditedCall | None:
    """Of the call that this task answers; None: it is not recorded."""
    return _PRESENT.get()


def resume_audit(call: AuditedCall | None) -> None:
    """For a stream that is closed by whoever comes across it: from now on this task answers that call again, and no other."""
    _PRESENT.set(call)


def note_before(before: Mapping[str, Any]) -> None:
    """How it was, for a call whose record is written when it has ended."""
    call = _PRESENT.get()
    if call is not None:
        call.before = before


def put_off_record() -> None:
    """In an audited transaction that only looks: what is asked for is done after it, and recorded when the call has ended."""
    call = _PRESENT.get()
    if call is not None:
        call.is_put_off = True


def audited(
    operation: Callable[[AnyConnection], Awaitable[_Result]],
    before: Callable[[AnyConnection], Awaitable[Mapping[str, Any]]] | None = None,
) -> Callable[[AnyConnection], Awaitable[_Result]]:
    """The same transaction, with the record of the call in it, where it is recorded. `before`: how it was until then."""
    call = _PRESENT.get()
    if call is None:
        return operation

    async def recorded(connection: AnyConnection) -> _Result:
        call.is_recorded = call.is_put_off = False
        if before is not None:
            call.before = await before(connection)
        result = await operation(connection)
        if not call.is_put_off:
            await audit_store.append(connection, call.ended())
            call.is_recorded = True
        return result

    return recorded


def _document(request: Message) -> Mapping[str, Any]:
    size_bytes = request.ByteSize()
    if size_bytes > _LARGEST_KEPT_BYTES:
        digest = hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest()
        return {"size_bytes": size_bytes, "sha256": digest}
    document: Mapping[str, Any] = without_passwords_within(MessageToDict(request, preserving_proto_field_name=True))
    return document
