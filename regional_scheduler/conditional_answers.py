"""What one region has said in a round, as answers on condition of what it has won before (decision 077).

A region answers each lot with the earlier lots placed that it assumes to win. So the same response says what it would answer
to a lot after none of these wins, after the first of them, after the first two, and so on: wherever the lots are alike, the
answer to one of them after so many wins is the answer to any of them after as many. Thus it does not matter which of the
alike lots a region has won, only how many.

Invariant (I11): `to` gives what the region would answer if it were asked with exactly those lots placed that it has won, or
nothing. Two lots that are alike differ in their standing only. That decides whom they may evict: so what evicts nobody is the
same for both, and where the better one finds nothing, neither does the worse one (unless its jobs fail only together: with
more victims to choose from, each may take another place); else only equal standings will do. The lots of a window are in queue order, so what was won in it is nobody's victim there, whatever its standing.
"""

from __future__ import annotations

from collections.abc import Sequence

from regional_scheduler.rounds import REFUSED_AS_ONE, Answer, Bid, Lot, NoPlan, RegionResponse, depends_on_wins


class ConditionalAnswers:
    """The answers of one region, as the lots of the round are decided in their order."""

    __slots__ = ("_alike", "_answers", "_as_foreseen", "_assumed", "_lots", "_positions", "_wins", "_wins_before")

    def __init__(self, response: RegionResponse, lots: Sequence[Lot]) -> None:
        self._lots = lots
        self._alike = response.alike or range(len(lots))
        self._answers = response.answers
        self._wins = 0
        """How many lots it has won so far."""
        self._as_foreseen = True
        """Whether what it has won is like the first of what it had assumed to win."""
        assumed = frozenset(response.assumed_wins)
        self._assumed: list[int] = []
        """The positions of the lots that it assumed to win."""
        self._wins_before: list[int] = []
        """[position] how many it had assumed to win before it answered."""
        self._positions: dict[tuple[int, int], list[int]] = {}
        """By the first lot that is alike and by assumed wins, where it answered."""
        for position, lot in enumerate(lots):
            self._wins_before.append(len(self._assumed))
            self._positions.setdefault((self._alike[position], len(self._assumed)), []).append(position)
            if lot.workload.workload in assumed:
                self._assumed.append(position)

    def to(self, position: int) -> Answer | None:
        """Its answer to this lot, with what it has won so far placed; None: the response does not say."""
        own = self._answers[position]
        if not depends_on_wins(own):
            return own
        if not self._as_foreseen:
            return None
        if self._wins_before[position] == self._wins:
            return own
        for like in self._positions.get((self._alike[position], self._wins), ()):
            answer = self._answers[like]
            if self._holds_for(answer, like, position):
                return answer
        return None

    def _holds_for(self, answer: Answer, like: int, position: int) -> bool:
        """Whether what it said to one lot it would say to the other one, which is like it."""
        standing, other = self._lots[position].position.standing, self._lots[like].position.standing
        match answer:
            case Bid():
                return standing == other or _evicts_nobody(answer)
            case NoPlan():
                return standing == other or (other < standing and answer.reason not in REFUSED_AS_ONE)
            case _:
                return True

    def win(self, position: int, bid: Answer) -> None:
        """It has won this lot, with this bid."""
        if self._as_foreseen:
            self._as_foreseen = self._wins < len(self._assumed) and self._is_as_assumed(position, bid)
        self._wins += 1

    def _is_as_assumed(self, position: int, bid: Answer) -> bool:
        """Whether the region looks as it did with the next of its assumed wins placed."""
        assumed = self._assumed[self._wins]
        if self._alike[position] != self._alike[assumed]:
            return False
        if self._lots[position].position.standing == self._lots[assumed].position.standing:
            return True
        return _evicts_nobody(bid) and _evicts_nobody(self._answers[assumed])


def _evicts_nobody(answer: Answer) -> bool:
    """Whether it is a bid with a plan that takes nothing from anybody."""
    return isinstance(answer, Bid) and answer.score.reclaim_class == 0
