"""The life of a migration: one table of (state, event) -> state; everything else is refused.

Copy, verify, switch, and only then delete: until the switch the old copies are what the catalog says, from the switch on
the new one is. So wherever it stops, a complete copy is left, and it can go on from what is written.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


class MigrationState(StrEnum):
    PLANNED = "planned"
    """Enqueued; nothing is reserved, nothing is written."""
    COPYING = "copying"
    """Room is reserved at the target, and files are being written there."""
    VERIFYING = "verifying"
    """All is written; sizes and checksums are compared."""
    FAILED = "failed"
    """A try to copy or verify failed; what it wrote stays for the next one, and so does what it reserved."""
    WITHDRAWN = "withdrawn"
    """It will not be finished; what it wrote has to be removed from the target."""
    ABANDONED = "abandoned"
    """It was given up, and nothing of it is left. The end."""
    SWITCHED = "switched"
    """The catalog names the copy. The end of a migration that deletes nothing."""
    DELETING = "deleting"
    """The copy that it replaces is being deleted."""
    DONE = "done"
    """The end."""


class MigrationHappening(StrEnum):
    """What can happen to a migration."""

    COPY_BEGAN = "copy_began"
    """Also: begins anew, after a failure or a crash."""
    COPIED = "copied"
    VERIFIED = "verified"
    """And the catalog switched, in the same transaction."""
    TRY_FAILED = "try_failed"
    GIVEN_UP = "given_up"
    CLEANED = "cleaned"
    DELETION_BEGAN = "deletion_began"
    """Also: begins anew, after a failure or a crash."""
    DELETED = "deleted"
    KEPT = "kept"
    """The copy that it was to delete is needed again."""


_S, _H = MigrationState, MigrationHappening

TRANSITIONS: MappingProxyType[tuple[MigrationState, MigrationHappening], MigrationState] = MappingProxyType(
    {
        (_S.PLANNED, _H.COPY_BEGAN): _S.COPYING,
        (_S.COPYING, _H.COPY_BEGAN): _S.COPYING,
        (_S.FAILED, _H.COPY_BEGAN): _S.COPYING,
        # The mover dies between its reports: what was copied is verified again.
        (_S.VERIFYING, _H.COPY_BEGAN): _S.COPYING,
        (_S.COPYING, _H.COPIED): _S.VERIFYING,
        (_S.COPYING, _H.TRY_FAILED): _S.FAILED,
        (_S.VERIFYING, _H.TRY_FAILED): _S.FAILED,
        (_S.VERIFYING, _H.VERIFIED): _S.SWITCHED,
        # Before the switch it can be given up: nobody was told of the copy.
        (_S.PLANNED, _H.GIVEN_UP): _S.WITHDRAWN,
        (_S.COPYING, _H.GIVEN_UP): _S.WITHDRAWN,
        (_S.VERIFYING, _H.GIVEN_UP): _S.WITHDRAWN,
        (_S.FAILED, _H.GIVEN_UP): _S.WITHDRAWN,
        (_S.WITHDRAWN, _H.CLEANED): _S.ABANDONED,
        (_S.SWITCHED, _H.DELETION_BEGAN): _S.DELETING,
        (_S.DELETING, _H.DELETION_BEGAN): _S.DELETING,
        (_S.SWITCHED, _H.KEPT): _S.DONE,
        (_S.DELETING, _H.KEPT): _S.DONE,
        (_S.DELETING, _H.DELETED): _S.DONE,
    }
)

BEGUN = frozenset({_S.COPYING, _S.VERIFYING, _S.FAILED})
"""It may have written to the target; the catalog does not say so yet."""
BEFORE_SWITCH = frozenset({_S.PLANNED, *BEGUN})


class MigrationRefused(Exception):
    """The table of states has no such row."""

    def __init__(self, number: int, state: MigrationState, happening: MigrationHappening) -> None:
        self.number = number
        self.state = state
        self.happening = happening
        super().__init__(f"migration {number} is {state}: '{happening}' cannot happen to it")


def next_migration_state(number: int, state: MigrationState, happening: MigrationHappening) -> MigrationState:
    """The state after `happening`; raises MigrationRefused when the table has no such row."""
    try:
        return TRANSITIONS[state, happening]
    except KeyError:
        raise MigrationRefused(number, state, happening) from None


def states_before_migration(happening: MigrationHappening) -> tuple[MigrationState, ...]:
    """All states in which this may happen, in the table's order: the guard of a conditional update."""
    return tuple(state for state, event in TRANSITIONS if event is happening)
