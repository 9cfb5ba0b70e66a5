"""In which order tables move when regions are nearly full: one that leaves makes room for one that comes.

In order of rank, whatever fits goes; what does not waits for room at its target. That can end with regions that wait for
each other's room although another order would not: for few moves all orders are tried.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from data_placement.migrations.storage import room
from domain.identifiers import RegionId

MOST_SEARCHED = 20
"""So many moves at most are tried in all orders."""
MOST_STATES = 20_000
"""So many sets of moves at most are looked at in that."""


@dataclass(frozen=True, slots=True)
class Relocation:
    """Takes room at one region, and gives some back at another when it is complete."""

    number: int
    target: RegionId
    needed_bytes: int
    leaves: RegionId | None = None
    freed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class WaitingMove:
    """A move for which no order makes room."""

    number: int
    region: RegionId
    """Where it finds no room, ..."""
    missing_bytes: float
    """... how much more it needs there, ..."""
    waits_for: tuple[int, ...]
    """... and which other waiting moves would leave that region."""


@dataclass(frozen=True, slots=True)
class MoveOrder:
    """One after the other they fit; those that wait never do."""

    order: tuple[int, ...]
    waiting: tuple[WaitingMove, ...] = ()


def order_of_moves(relocations: Sequence[Relocation], free: Mapping[RegionId, float]) -> MoveOrder:
    """An order in which as many as possible fit, one after the other; `relocations` come in order of rank.

    It is the greatest number for up to MOST_SEARCHED of them, as far as MOST_STATES sets of them go.
    """
    order = _greedy(relocations, free)
    if len(order) < len(relocations) <= MOST_SEARCHED:
        searched = _searched(relocations, free)
        order = searched if len(searched) > len(order) else order
    return MoveOrder(tuple(relocations[place].number for place in order), _waiting(relocations, free, order))


def _greedy(relocations: Sequence[Relocation], free: Mapping[RegionId, float]) -> list[int]:
    """Places, the best ranked that fits first; a move that does not fit is tried again when its target has more room."""
    left = dict(free)
    ready = list(range(len(relocations)))
    parked: dict[RegionId, list[int]] = {}
    order: list[int] = []
    while ready:
        place = heapq.heappop(ready)
        move = relocations[place]
        if move.needed_bytes > room(left, move.target):
            parked.setdefault(move.target, []).append(place)
            continue
        order.append(place)
        _carry_out(left, move)
        if move.leaves is not None and move.freed_bytes:
            for woken in parked.pop(move.leaves, ()):
                heapq.heappush(ready, woken)
    return order


def _searched(relocations: Sequence[Relocation], free: Mapping[RegionId, float]) -> list[int]:
    """The same by trying orders, depth first; what is free depends on which moves are done, not on their order."""
    everything = (1 << len(relocations)) - 1
    best: list[int] = []
    seen = {0}
    stack: list[tuple[int, list[int], dict[RegionId, float]]] = [(0, [], dict(free))]
    while stack:
        done, order, left = stack.pop()
        if len(order) > len(best):
            best = order
        if done == everything or len(seen) > MOST_STATES:
            break
        # Pushed in reverse, so that the best ranked is tried first.
        for place in reversed(range(len(relocations))):
            move, after = relocations[place], done | 1 << place
            if after == done or after in seen or move.needed_bytes > room(left, move.target):
                continue
            seen.add(after)
            left_after = dict(left)
            _carry_out(left_after, move)
            stack.append((after, [*order, place], left_after))
    return best


def _waiting(
    relocations: Sequence[Relocation], free: Mapping[RegionId, float], order: Sequence[int]
) -> tuple[WaitingMove, ...]:
    """Those that are not in the order, with what they wait for once all others are done."""
    left = dict(free)
    for place in order:
        _carry_out(left, relocations[place])
    done = set(order)
    waiting = [move for place, move in enumerate(relocations) if place not in done]
    leaving: dict[RegionId, list[int]] = {}
    for move in waiting:
        if move.leaves is not None:
            leaving.setdefault(move.leaves, []).append(move.number)
    return tuple(
        WaitingMove(
            move.number,
            move.target,
            move.needed_bytes - room(left, move.target),
            tuple(number for number in leaving.get(move.target, ()) if number != move.number),
        )
        for move in waiting
    )


def _carry_out(left: dict[RegionId, float], move: Relocation) -> None:
    if move.target in left:
        left[move.target] -= move.needed_bytes
    if move.leaves in left:
        left[move.leaves] += move.freed_bytes
