"""How to learn, after a connection was lost during a commit, whether the transaction was committed.

Each transaction in flight has a slot: a row of its own in the table commit_marks, in which it writes its number.
Later, on another connection, the number shows it. (PostgreSQL's own answer, pg_xact_status, cannot be trusted here:
after a crash it may give a transaction's id to another one, when nothing of the first had reached the disk.)
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass

from services.database.connection import AnyConnection

_KEPT = "1 day"
"""Slots of processes that ended are deleted after that long."""


@dataclass(slots=True)
class Slot:
    """One row of commit_marks, used by one transaction at a time."""

    name: str
    number: int = 0
    exists: bool = False


class CommitMarks:
    """The slots of one process."""

    def __init__(self) -> None:
        self._prefix = f"{os.getpid()}-{uuid.uuid4().hex}"
        self._free: list[Slot] = []
        self._made = 0

    def take(self) -> Slot:
        """A slot with no other user until it is given back."""
        if self._free:
            return self._free.pop()
        self._made += 1
        return Slot(f"{self._prefix}-{self._made}")

    def give_back(self, slot: Slot) -> None:
        self._free.append(slot)

    async def make_row(self, connection: AnyConnection, slot: Slot) -> None:
        """Makes the slot's row, in a transaction of its own, and deletes those that are long forgotten."""
        if slot.exists:
            return
        if self._made == 1:
            await connection.execute(f"DELETE FROM commit_marks WHERE made_at < now() - interval '{_KEPT}'")
        await connection.execute(
            "INSERT INTO commit_marks (slot, number, made_at) VALUES (%s, 0, now()) ON CONFLICT DO NOTHING",
            [slot.name],
        )
        await connection.commit()
        slot.exists = True

    async def mark(self, connection: AnyConnection, slot: Slot) -> None:
        """Marks the transaction, as its last statement, if it has written anything.

        What has written nothing counts as not committed, and may as well be done again.
        """
        slot.number += 1
        await connection.execute(
            """UPDATE commit_marks SET number = %s, made_at = now()
                WHERE slot = %s AND pg_current_xact_id_if_assigned() IS NOT NULL""",
            [slot.number, slot.name],
        )

    async def was_committed(self, connection: AnyConnection, slot: Slot) -> bool:
        """Whether the transaction that last marked the slot was committed; waits while that is still going on."""
        cursor = await connection.execute("SELECT number FROM commit_marks WHERE slot = %s FOR UPDATE", [slot.name])
        row = await cursor.fetchone()
        await connection.rollback()
        return row is not None and row[0] == slot.number
