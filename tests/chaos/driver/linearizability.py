"""Whether what clients saw of a workload is what some order of their calls, one after the other, explains.

Wing and Gong's search, with the memory of Lowe's and Porcupine's: an order is built call by call, each at a moment between
its beginning and its end; of the same calls made with the same outcome it is built on once only. A call whose outcome nobody
knows may take effect at any time after it began, or never.

The workload itself moves meanwhile: what nobody asked for (it starts, it ends) may happen between any two calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tests.chaos.driver.history import Kind, Operation

ENDS = frozenset({"COMPLETED", "FAILED", "CANCELLED"})


@dataclass(frozen=True, slots=True)
class Seen:
    """What is certain of the workload after some of the calls."""

    workload: str = ""
    """"": it was not submitted."""
    cancel_asked: bool = False
    end: str = ""
    """"": nobody has seen one."""
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Violation:
    """A workload of which no order explains what was seen."""

    key: str
    sentence: str


def check(operations: Iterable[Operation]) -> list[Violation]:
    """All workloads that were seen to be otherwise than they can have been, by key."""
    by_key: dict[str, list[Operation]] = {}
    for operation in operations:
        by_key.setdefault(operation.key, []).append(operation)
    return [violation for key in sorted(by_key) if (violation := check_workload(key, by_key[key])) is not None]


def check_workload(key: str, operations: Sequence[Operation]) -> Violation | None:
    """None when some order explains what was seen of this workload."""
    calls = _without_idle_calls(sorted(operations, key=lambda one: (one.called_s, one.number)))
    must = {number for number, call in enumerate(calls) if call.is_known}
    tried: set[tuple[frozenset[int], Seen]] = set()
    furthest: frozenset[int] = frozenset()
    open_ends: list[tuple[frozenset[int], Seen]] = [(frozenset(), Seen())]
    while open_ends:
        made, seen = open_ends.pop()
        if must <= made:
            return None
        if (made, seen) in tried:
            continue
        tried.add((made, seen))
        if len(made & must) >= len(furthest & must):
            furthest = made
        for number in _possible_next(calls, made):
            open_ends.extend((made | {number}, after) for after in outcomes(seen, calls[number]))
    unexplained = [calls[number] for number in sorted(must - furthest)]
    return Violation(key, f"after {len(furthest)} of {len(calls)} calls no order explains {unexplained[:2]}")


def _without_idle_calls(calls: Sequence[Operation]) -> list[Operation]:
    """Of the calls of a kind without an outcome the first one only: what a later one may have done, that may have done at the same
    moment. A look without an outcome did nothing. (A client that asks again and again would make the search endless.)"""
    unanswered: set[Kind] = {Kind.GET}
    left = []
    for call in calls:
        if call.is_known or call.kind not in unanswered:
            left.append(call)
        if not call.is_known:
            unanswered.add(call.kind)
    return left


def _possible_next(calls: Sequence[Operation], made: frozenset[int]) -> Iterator[int]:
    """Those that began before any other that is not made yet had ended."""
    left = [number for number in range(len(calls)) if number not in made]
    first_end_s = min(calls[number].returned_s for number in left)
    return (number for number in left if calls[number].called_s <= first_end_s)


def outcomes(seen: Seen, call: Operation) -> Iterator[Seen]:
    """What may be certain after the call, had it been made now and been answered so; nothing when it cannot have been."""
    match call.kind:
        case Kind.SUBMIT:
            yield from _submitted(seen, call)
        case Kind.GET:
            yield from _looked(seen, call)
        case Kind.CANCEL:
            yield from _cancelled(seen, call)


def _submitted(seen: Seen, call: Operation) -> Iterator[Seen]:
    if not call.is_known:
        yield seen if seen.workload else replace(seen, workload=call.workload or "?")
    elif call.existed:
        if seen.workload in {"?", call.workload}:
            yield replace(seen, workload=call.workload)
    elif not seen.workload:
        yield replace(seen, workload=call.workload)


def _looked(seen: Seen, call: Operation) -> Iterator[Seen]:
    if not call.is_known:
        yield seen
    elif not call.found:
        if not seen.workload:
            yield seen
    elif seen.workload and call.attempts >= seen.attempts:
        yield from _shown(replace(seen, attempts=call.attempts), call.state)


def _cancelled(seen: Seen, call: Operation) -> Iterator[Seen]:
    if not call.is_known:
        yield replace(seen, cancel_asked=bool(seen.workload))
    elif not call.found:
        if not seen.workload:
            yield seen
    elif seen.workload:
        if call.refused:
            yield from ([seen] if seen.end else [replace(seen, end=end) for end in sorted(_ends(seen))])
        else:
            yield from _shown(replace(seen, cancel_asked=True), call.state)


def _shown(seen: Seen, state: str) -> Iterator[Seen]:
    """A state was shown: an end stays, and is a cancellation only when one was asked for."""
    if state not in ENDS:
        if not seen.end:
            yield seen
    elif seen.end in {"", state} and state in _ends(seen):
        yield replace(seen, end=state)


def _ends(seen: Seen) -> frozenset[str]:
    return ENDS if seen.cancel_asked else ENDS - {"CANCELLED"}
