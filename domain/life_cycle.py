"""The life of a workload: one table of (state, event) -> state; everything else is refused with its history.

Read a row as: in this state, when this happens, the workload is in that state from now on.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from types import MappingProxyType

from domain.identifiers import WorkloadId


class State(StrEnum):
    # An Enum hashes its name in Python; as text it is hashed in C, and equal ones still have equal hashes.
    __hash__ = str.__hash__

    PENDING = "PENDING"
    WAITING = "WAITING"
    AWAITING_DATA = "AWAITING_DATA"
    DISPATCHED = "DISPATCHED"
    RUNNING = "RUNNING"
    PREEMPTING = "PREEMPTING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class Happening(StrEnum):
    """What can happen to a workload (the rows' second column)."""

    __hash__ = str.__hash__

    NO_PLACE = "no_place"
    NO_DATA = "no_data"
    HELD = "held"
    RELEASED = "released"
    CHANGED = "changed"
    DISPATCHED = "dispatched"
    STARTED = "started"
    EVICTION_BEGAN = "eviction_began"
    EVICTED = "evicted"
    COMPLETED = "completed"
    ATTEMPT_FAILED = "attempt_failed"
    FAILED = "failed"
    CANCELLED = "cancelled"


QUEUED = frozenset({State.PENDING, State.WAITING, State.AWAITING_DATA})
LIVE = frozenset({State.DISPATCHED, State.RUNNING, State.PREEMPTING})
ENDED = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})

TRANSITIONS: MappingProxyType[tuple[State, Happening], State] = MappingProxyType(
    {
        # In the queue: the auction's outcome, written by the region that closes the round. A workload stays what the
        # newest auction said, also while the next pass ranks it and puts it up again; what is said again may say it
        # with other numbers.
        (State.PENDING, Happening.NO_PLACE): State.WAITING,
        (State.AWAITING_DATA, Happening.NO_PLACE): State.WAITING,
        (State.WAITING, Happening.NO_PLACE): State.WAITING,
        (State.PENDING, Happening.NO_DATA): State.AWAITING_DATA,
        (State.WAITING, Happening.NO_DATA): State.AWAITING_DATA,
        (State.AWAITING_DATA, Happening.NO_DATA): State.AWAITING_DATA,
        # Its user holds it: it waits outside the queue, and no auction says anything of it before it is released; or changes
        # what it asks for: what auctions said of it counts no more (global scheduler).
        (State.PENDING, Happening.HELD): State.PENDING,
        (State.WAITING, Happening.HELD): State.PENDING,
        (State.AWAITING_DATA, Happening.HELD): State.PENDING,
        (State.PENDING, Happening.RELEASED): State.PENDING,
        (State.PENDING, Happening.CHANGED): State.PENDING,
        (State.WAITING, Happening.CHANGED): State.PENDING,
        (State.AWAITING_DATA, Happening.CHANGED): State.PENDING,
        # The winner of the auction dispatches (its regional scheduler).
        (State.PENDING, Happening.DISPATCHED): State.DISPATCHED,
        (State.WAITING, Happening.DISPATCHED): State.DISPATCHED,
        (State.AWAITING_DATA, Happening.DISPATCHED): State.DISPATCHED,
        # The cluster managers report the whole gang started (regional scheduler records it).
        (State.DISPATCHED, Happening.STARTED): State.RUNNING,
        # A better workload, a drain, a reclaim, a cancellation, its user, its time limit or the loss of a machine wants the attempt to stop
        # (regional scheduler).
        (State.DISPATCHED, Happening.EVICTION_BEGAN): State.PREEMPTING,
        (State.RUNNING, Happening.EVICTION_BEGAN): State.PREEMPTING,
        # It has stopped: back to the queue with its checkpoint (regional scheduler).
        (State.PREEMPTING, Happening.EVICTED): State.PENDING,
        # All its tasks ended well; also while it was being asked to stop (regional scheduler).
        (State.DISPATCHED, Happening.COMPLETED): State.COMPLETED,
        (State.RUNNING, Happening.COMPLETED): State.COMPLETED,
        (State.PREEMPTING, Happening.COMPLETED): State.COMPLETED,
        # A task failed and retries are left, or it was lost by itself: back to the queue after a wait (regional
        # scheduler).
        (State.DISPATCHED, Happening.ATTEMPT_FAILED): State.PENDING,
        (State.RUNNING, Happening.ATTEMPT_FAILED): State.PENDING,
        (State.PREEMPTING, Happening.ATTEMPT_FAILED): State.PENDING,
        # A task failed and no retries are left, or its time limit was reached (regional scheduler).
        (State.DISPATCHED, Happening.FAILED): State.FAILED,
        (State.RUNNING, Happening.FAILED): State.FAILED,
        (State.PREEMPTING, Happening.FAILED): State.FAILED,
        # The user cancelled: at once in the queue (global scheduler), else when the attempt has stopped
        # (regional scheduler).
        (State.PENDING, Happening.CANCELLED): State.CANCELLED,
        (State.WAITING, Happening.CANCELLED): State.CANCELLED,
        (State.AWAITING_DATA, Happening.CANCELLED): State.CANCELLED,
        (State.DISPATCHED, Happening.CANCELLED): State.CANCELLED,
        (State.RUNNING, Happening.CANCELLED): State.CANCELLED,
        (State.PREEMPTING, Happening.CANCELLED): State.CANCELLED,
    }
)


class TransitionRefused(Exception):
    """The life cycle has no such row. `history` is what had happened to the workload so far, oldest first."""

    def __init__(self, workload: WorkloadId, state: State, happening: Happening, history: tuple[str, ...]) -> None:
        self.workload = workload
        self.state = state
        self.happening = happening
        self.history = history
        known = "; ".join(history) if history else "nothing recorded"
        super().__init__(f"workload {workload} is {state}: '{happening}' cannot happen to it (history: {known})")


def next_state(workload: WorkloadId, state: State, happening: Happening, history: tuple[str, ...] = ()) -> State:
    """The state after `happening`; raises TransitionRefused when the table has no such row."""
    try:
        return TRANSITIONS[state, happening]
    except KeyError:
        raise TransitionRefused(workload, state, happening, history) from None


def states_before(happening: Happening) -> tuple[State, ...]:
    """All states in which this may happen, in the table's order: the guard of a conditional update."""
    return tuple(state for state, event in TRANSITIONS if event is happening)


def state_after(happening: Happening) -> State:
    """The one state to which this leads, from wherever. Raises ValueError when that depends on the state before."""
    (after,) = {after for (_, event), after in TRANSITIONS.items() if event is happening}
    return after


def state_changes(states: Collection[State]) -> tuple[tuple[State, State], ...]:
    """All (before, after) that happen to a workload in one of these states, each once, in the table's order."""
    return tuple(dict.fromkeys((before, after) for (before, _), after in TRANSITIONS.items() if before in states))
