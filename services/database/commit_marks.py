"""How to learn, after a connection was lost during a commit, whether the transaction was committed.

Each transaction in flight has a slot: a row of its own in the table commit_marks, in which it writes its number.
Later, on another connection, the number shows it. (PostgreSQL's own answer, pg_xact_status, cannot be trusted here:
after a crash it may give a transaction's id to another one, when nothing of the first had reached the disk.)
"""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass

from services.database.connection import AnyConnection

_KEPT = "7 days"
"""Slots of processes that ended are deleted after that long."""

_REFRESHED_REAL_S = 12 * 3600.0
"""The row of a slot is made anew so often, so that nobody takes its owner for ended."""


@dataclass(slots=True)
class Slot:
    """One row of commit_marks, used by one transaction at a time."""

    name: str
    number: int = 0
    made_real_s: float | None = None
    """When its row was made, or made anew, on the machine's monotonic clock; None: there is none."""


class CommitMarks:
    """The slots of one process."""

    def __init__(self) -> None:
        self._prefix = f"{os.getpid()}-{uuid.uuid4().hex}"
        self._free: list[Slot] = []
        self._made = 0
        self._cleaned_real_s = float("-inf")

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
        made_real_s = time.monotonic()
        if slot.made_real_s is not None and made_real_s < slot.made_real_s + _REFRESHED_REAL_S:
            return
        if made_real_s >= self._cleaned_real_s + _REFRESHED_REAL_S:
            self._cleaned_real_s = made_real_s
            await connection.execute(f"DELETE FROM commit_marks WHERE made_at < now() - interval '{_KEPT}'")
        await connection.execute(
            """INSERT INTO commit_marks (slot, number, made_at) VALUES (%s, %s, now())
               ON CONFLICT (slot) DO UPDATE SET made_at = excluded.made_at""",
            [slot.name, slot.number],
        )
        await connection.commit()
        slot.made_real_s = made_real_s

    def begin_commit(self, slot: Slot) -> None:
        """From now on the transaction may be in doubt: it has a number that no earlier one of its slot had.

        Before anything of the commit is tried: whatever breaks then, `was_committed` does not take an earlier one for it.
        """
        slot.number += 1

    async def mark(self, connection: AnyConnection, slot: Slot) -> None:
        """Marks the transaction, as its last statement, if it has written anything.

        What has written nothing counts as not committed, and may as well be done again.
        """
        await connection.execute(
            # Divided by zero, and so refused, is what its server comes to when it was found not to be committed.
            # A row that is not there any more (another server has taken over, which did not have it) is made again.
            """INSERT INTO commit_marks AS mark (slot, number, made_at)
               SELECT %s, %s, now() WHERE pg_current_xact_id_if_assigned() IS NOT NULL
               ON CONFLICT (slot) DO UPDATE
                  SET number = CASE WHEN mark.number < excluded.number THEN excluded.number ELSE 1 / (mark.number - mark.number) END,
                      made_at = excluded.made_at""",
            [slot.name, slot.number],
        )

    async def was_committed(self, connection: AnyConnection, slot: Slot) -> bool:
        """Whether the transaction that last began its commit with this slot was committed.

        Waits while its server is carrying that out. What its server has not come to by now, however late it does, is refused: so
        what was not committed never will be.
        """
        cursor = await connection.execute(
            # Written in either case: its commit waits, where commits do, until replicas have what precedes it.
            """INSERT INTO commit_marks AS mark (slot, number, made_at) VALUES (%s, %s, now())
               ON CONFLICT (slot) DO UPDATE
                  SET number = CASE WHEN mark.number = %s THEN mark.number ELSE excluded.number END, made_at = excluded.made_at
               RETURNING number""",
            [slot.name, slot.number + 1, slot.number],
        )
        row = await cursor.fetchone()
        await connection.commit()
        if row is not None and row[0] == slot.number:
            return True
        slot.number += 1
        return False
