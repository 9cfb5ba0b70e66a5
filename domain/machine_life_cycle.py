"""The life of a machine: one table of (state, happening) -> state; everything else is refused.

Read a row as: in this state, when this happens, the machine is in that state from now on. A machine for training begins
as `up`, a machine of an inference cluster as `serving`.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType

from domain.events import EventKind
from domain.fleet import MachineState
from domain.identifiers import MachineId


class MachineHappening(StrEnum):
    """What can happen to a machine (the rows' second column)."""

    FAILED = "failed"
    REPAIRED = "repaired"
    DRAINED = "drained"
    UNDRAINED = "undrained"
    LENT = "lent"
    ASKED_BACK = "asked_back"
    KEPT = "kept"
    """It was asked back, and is lent again before it went."""
    HANDED_BACK = "handed_back"


MACHINE_TRANSITIONS: MappingProxyType[tuple[MachineState, MachineHappening], MachineState] = MappingProxyType(
    {
        # Machines for training. Its cluster manager loses sight of one, or sees it again (regional scheduler).
        (MachineState.UP, MachineHappening.FAILED): MachineState.DOWN,
        (MachineState.DOWN, MachineHappening.REPAIRED): MachineState.UP,
        # A drain outlasts a restart, for which most are drained.
        (MachineState.DRAINING, MachineHappening.FAILED): MachineState.DRAINING_DOWN,
        (MachineState.DRAINING_DOWN, MachineHappening.REPAIRED): MachineState.DRAINING,
        # An operator drains it, or undoes that (regional scheduler).
        (MachineState.UP, MachineHappening.DRAINED): MachineState.DRAINING,
        (MachineState.DOWN, MachineHappening.DRAINED): MachineState.DRAINING_DOWN,
        (MachineState.DRAINING, MachineHappening.UNDRAINED): MachineState.UP,
        (MachineState.DRAINING_DOWN, MachineHappening.UNDRAINED): MachineState.DOWN,
        # Machines of inference clusters. Inference does not need it; one that is down only when no other is left
        # (the lender).
        (MachineState.SERVING, MachineHappening.LENT): MachineState.ON_LOAN,
        (MachineState.SERVING_DOWN, MachineHappening.LENT): MachineState.ON_LOAN_DOWN,
        # Inference needs it: the reclaiming policy chose it, and what runs on it is asked to leave; also when it is
        # down, where an attempt may still be held whose end was not seen (the lender).
        (MachineState.ON_LOAN, MachineHappening.ASKED_BACK): MachineState.RETURNING,
        (MachineState.ON_LOAN_DOWN, MachineHappening.ASKED_BACK): MachineState.RETURNING_DOWN,
        # Inference changes its mind before everything has left (the lender).
        (MachineState.RETURNING, MachineHappening.KEPT): MachineState.ON_LOAN,
        (MachineState.RETURNING_DOWN, MachineHappening.KEPT): MachineState.ON_LOAN_DOWN,
        # The last attempt has left it (the lender).
        (MachineState.RETURNING, MachineHappening.HANDED_BACK): MachineState.SERVING,
        (MachineState.RETURNING_DOWN, MachineHappening.HANDED_BACK): MachineState.SERVING_DOWN,
        # Failing changes nothing about which side has the machine: a loan lasts, and so does its return (regional scheduler).
        (MachineState.SERVING, MachineHappening.FAILED): MachineState.SERVING_DOWN,
        (MachineState.ON_LOAN, MachineHappening.FAILED): MachineState.ON_LOAN_DOWN,
        (MachineState.RETURNING, MachineHappening.FAILED): MachineState.RETURNING_DOWN,
        (MachineState.SERVING_DOWN, MachineHappening.REPAIRED): MachineState.SERVING,
        (MachineState.ON_LOAN_DOWN, MachineHappening.REPAIRED): MachineState.ON_LOAN,
        (MachineState.RETURNING_DOWN, MachineHappening.REPAIRED): MachineState.RETURNING,
    }
)

MACHINE_EVENTS: MappingProxyType[MachineHappening, EventKind] = MappingProxyType(
    {
        MachineHappening.FAILED: EventKind.MACHINE_DOWN,
        MachineHappening.REPAIRED: EventKind.MACHINE_UP,
        MachineHappening.DRAINED: EventKind.MACHINE_DRAINING,
        MachineHappening.UNDRAINED: EventKind.MACHINE_UP,
        MachineHappening.LENT: EventKind.LOANED,
        MachineHappening.HANDED_BACK: EventKind.RECLAIMED,
    }
)
"""What the event log says of it. The others it shows by what the attempts do: asked to leave, or not."""


class MachineTransitionRefused(Exception):
    """The table has no such row; nothing has changed."""

    def __init__(self, machine: MachineId, state: MachineState, happening: MachineHappening) -> None:
        self.machine = machine
        self.state = state
        self.happening = happening
        possible = ", ".join(other for before, other in MACHINE_TRANSITIONS if before is state)
        super().__init__(f"machine {machine} is {state}: it cannot be {happening} (it can be: {possible})")


def next_machine_state(machine: MachineId, state: MachineState, happening: MachineHappening) -> MachineState:
    """The state after `happening`; raises MachineTransitionRefused when the table has no such row."""
    try:
        return MACHINE_TRANSITIONS[state, happening]
    except KeyError:
        raise MachineTransitionRefused(machine, state, happening) from None


def machine_rows(happening: MachineHappening) -> tuple[tuple[MachineState, MachineState], ...]:
    """Every (state before, state after) of this happening, in the table's order: what a conditional update writes."""
    return tuple((before, after) for (before, what), after in MACHINE_TRANSITIONS.items() if what is happening)
