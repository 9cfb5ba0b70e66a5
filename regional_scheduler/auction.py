"""Closing an auction round: which region wins which lot (MAST §4.3; decision 003).

Rule: the region with the best score wins; ties go to the region first by name. Lots are decided in queue order, and
only as far as every answer that counts was given under assumptions that came true; the rest goes to the next round.

Invariant (I11): the lots of a round that are decided are decided exactly as one-at-a-time auctions in queue order
would have decided them, whatever the window and whatever the hints. An answer to a lot depends on what its region had
placed before; it had placed the earlier lots of the window that it assumed to win. Where these are the earlier lots
that it did win, or lots like them, the answer is the one that it would have given one at a time (`conditional_answers`).
Before the first lot nothing is assumed, so that at least one lot is decided in every round.

Ignores: regions that did not answer by the deadline; they count as having abandoned, except that a workload whose data
one of them may hold does not await data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import zip_longest
from typing import TypeAlias

from domain.diagnosis import Diagnosis, Reason, closest
from domain.identifiers import RegionId, TableId, WorkloadId
from domain.placement import Score
from domain.rank import QueuePosition
from regional_scheduler.alike_lots import LONG_RUN, leading_run
from regional_scheduler.conditional_answers import ConditionalAnswers
from regional_scheduler.refusals.kinds import WorkloadKind
from regional_scheduler.rounds import (
    REFUSED_AS_ONE,
    Abandoned,
    Answer,
    AuctionSettings,
    Bid,
    Lot,
    NoPlan,
    PlanSummary,
    RegionResponse,
    Round,
)
from regional_scheduler.winner_prediction import expected_winners

FEWEST_LOTS = 4
"""A round puts up so many lots at least, however badly guesses have gone (unless the settings say fewer)."""
FIRST_GUESSES = 64
"""So many lots are worth a guess after some that had none, in rounds of which only some lots are asked."""


class WinReason(StrEnum):
    ONLY_BID = "only_bid"
    BETTER_SCORE = "better_score"
    FIRST_BY_NAME = "first_by_name"
    """Another region bid exactly the same score."""


@dataclass(frozen=True, slots=True)
class Won:
    """A region won the lot and will dispatch it."""

    lot: Lot
    winner: RegionId
    score: Score
    summary: PlanSummary
    reason: WinReason
    sentence: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """No region can run the workload now; the next scan pass gives it a new chance."""

    lot: Lot
    diagnosis: Diagnosis
    """That of the region which comes closest."""
    sentence: str

    @property
    def reason(self) -> Reason:
        return self.diagnosis.reason


@dataclass(frozen=True, slots=True)
class AwaitingData:
    """Every region abandoned, at least one for lack of data alone, and none that may hold it is unheard of. `missing_tables`: what which region lacks."""

    lot: Lot
    missing_tables: tuple[tuple[RegionId, tuple[TableId, ...]], ...]
    diagnosis: Diagnosis
    """That of the region which lacks nothing but tables; of several, the first by name."""
    sentence: str

    @property
    def tables(self) -> tuple[TableId, ...]:
        """Everything that is missing anywhere, sorted."""
        return tuple(sorted({table for _, tables in self.missing_tables for table in tables}))


Verdict = Won | Waiting | AwaitingData
_Decided: TypeAlias = tuple[Verdict, Mapping[RegionId, Answer]]
"""What becomes of a lot, and the answers that decide it: what each region would say with what it has won before."""


@dataclass(frozen=True, slots=True)
class NotYet:
    """The round cannot be closed: these participants may still answer, until then."""

    missing: tuple[RegionId, ...]
    until_s: float


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What a closed round decided: a verdict for each lot of a prefix of the window, in queue order."""

    round_number: int
    scan_pass: int
    closed_s: float
    verdicts: tuple[Verdict, ...]
    cursor: QueuePosition | None
    """The place of the last decided lot; the next window begins behind it. None when the round had no lots."""
    carried_over: tuple[Lot, ...]
    """The undecided rest, with the winners that the answers lead to expect: the next round's first lots."""
    upcoming: tuple[Lot, ...]
    """What follows behind the window, with expected winners, as far as it may be put up next."""
    exhausted: bool
    """True when nothing of this scan pass is left to auction."""
    absent: tuple[RegionId, ...]
    reach: int | None
    """How many of the lots that follow are worth a guess, and an answer; None: nothing is known of that."""
    hopeless: tuple[WorkloadId, ...] = ()
    """Those without a winner for which no region has room: what else asks for the same finds none either, until
    capacity is released."""
    tenants_apart: bool = False
    """Whether that holds for workloads of the same tenant only."""
    runs_alone: bool = True
    """Whether a long run of alike lots may be put up alone, without guesses: every region said which lots are alike."""

    def next_window(self, settings: AuctionSettings) -> int:
        """How many lots the next round should put up, or ask: as many as the guesses have lately been good for.

        What lies behind the first wrong guess is planned in vain. A round without guesses says nothing about them.
        """
        return settings.window if self.reach is None else min(settings.window, self.reach)

    def followed_by(self, then: RoundOutcome) -> RoundOutcome:
        """What the round comes to when it has been continued over what this outcome left undecided."""
        return replace(
            then,
            verdicts=(*self.verdicts, *then.verdicts),
            cursor=then.cursor or self.cursor,
            hopeless=(*self.hopeless, *then.hopeless),
            tenants_apart=self.tenants_apart or then.tenants_apart,
            runs_alone=self.runs_alone and then.runs_alone,
        )

    def hints(self) -> dict[WorkloadId, RegionId]:
        """The expected winners of what comes next, as `open_round` takes them."""
        return {
            lot.workload.workload: lot.expected_winner
            for lot in (*self.carried_over, *self.upcoming)
            if lot.expected_winner is not None
        }

    def hints_of_kinds(self) -> dict[WorkloadKind, tuple[RegionId, ...]]:
        """The same by kind, in queue order: where the queue is ranked anew, another one of the kind takes the place."""
        hints: dict[WorkloadKind, tuple[RegionId, ...]] = {}
        for lot in (*self.carried_over, *self.upcoming):
            if lot.kind is not None and lot.expected_winner is not None:
                hints[lot.kind] = (*hints.get(lot.kind, ()), lot.expected_winner)
        return hints


Holders: TypeAlias = Callable[[Lot], Sequence[RegionId]]
"""The regions that hold every table of a lot and may be heard of, sorted; whether they take part or not."""


def close_round(
    auction_round: Round,
    responses: Sequence[RegionResponse],
    now: float,
    upcoming: Sequence[Lot] = (),
    holders: Holders | None = None,
) -> RoundOutcome | NotYet:
    """Decides what can be decided, as soon as all participants have answered or the deadline has passed.

    Any region may do it, any number of times: the outcome depends on the arguments alone, and `responses` may come in
    any order. `upcoming` may name lots that follow behind the window; they only get expected winners. A lot awaits its
    data only if none of its `holders` is unheard of; without `holders` every absent region may be one. Raises ValueError
    for a response that does not belong to this round.
    """
    answered = _by_region(auction_round, responses)
    absent = tuple(region for region in auction_round.participants if region not in answered)
    if absent and now < auction_round.deadline_s:
        return NotYet(absent, auction_round.deadline_s)
    asked = auction_round.lots_to_answer
    decided = _decide_prefix(asked, answered, absent, holders)
    verdicts = tuple([verdict for verdict, _ in decided])
    undecided = auction_round.lots[len(verdicts) :]
    reach = _reach(auction_round, len(verdicts))
    if reach is not None:
        upcoming = upcoming[: max(0, reach - len(undecided))]
    following = (*undecided, *upcoming)
    # Where a region tells all lots apart, a run is decided as far as guesses go, like any other window.
    runs_alone = all(response.alike for response in answered.values())
    expected: tuple[RegionId | None, ...] = ()
    # A run is put up alone, and all of it decided at once.
    if not runs_alone or leading_run(following) < LONG_RUN:
        winners = tuple(verdict.winner if isinstance(verdict, Won) else None for verdict in verdicts)
        beyond = following[len(asked) - len(verdicts) :]
        expected = expected_winners(asked, tuple(answered.values()), winners, beyond, reach)
    hinted = tuple(lot._replace(expected_winner=winner) for lot, winner in zip_longest(following, expected))
    return RoundOutcome(
        round_number=auction_round.number,
        scan_pass=auction_round.scan_pass,
        closed_s=now,
        verdicts=verdicts,
        cursor=verdicts[-1].lot.position if verdicts else None,
        carried_over=hinted[: len(undecided)],
        upcoming=hinted[len(undecided) :],
        exhausted=auction_round.reaches_end and not undecided,
        absent=absent,
        reach=reach,
        hopeless=() if absent else tuple(_hopeless(decided)),
        tenants_apart=any(response.tenants_apart for response in answered.values()),
        runs_alone=runs_alone,
    )


def _hopeless(decided: Sequence[_Decided]) -> Iterator[WorkloadId]:
    """Whose refusals hold for all that ask for the same: of each region as it is, with what it has won in the round.

    Jobs that fail only together may fit where there is less: see `depends_on_wins`. What is kept for others is open to whoever
    says that it ends in time, and to whom it is kept for. What counts is what a region would answer with what it has won: to a lot
    that it had answered with other wins placed, that may be another thing than its response says of it.
    """
    for verdict, answers in decided:
        alone = any(isinstance(answer, NoPlan) and answer.reason in REFUSED_AS_ONE for answer in answers.values())
        if answers and not isinstance(verdict, Won) and not alone:
            yield verdict.lot.workload.workload


def _reach(auction_round: Round, decided: int) -> int | None:
    """How many lots are worth a guess after a round in which the guesses were good for so many; None: that is not known."""
    asked = auction_round.lots_to_answer
    if all(lot.expected_winner is None for lot in asked):
        return None if auction_round.asked is None else FIRST_GUESSES
    return max(FEWEST_LOTS, 4 * decided if decided == len(asked) else 3 * decided)


def _by_region(auction_round: Round, responses: Sequence[RegionResponse]) -> dict[RegionId, RegionResponse]:
    """The responses by region, in the order of their names."""
    answered: dict[RegionId, RegionResponse] = {}
    for response in sorted(responses, key=lambda response: response.region):
        if response.round_number != auction_round.number:
            raise ValueError(f"a response to round {response.round_number} cannot close round {auction_round.number}")
        if response.region not in auction_round.participants:
            raise ValueError(f"region {response.region} does not participate in round {auction_round.number}")
        if response.region in answered:
            raise ValueError(f"region {response.region} answered round {auction_round.number} twice")
        if len(response.answers) != len(auction_round.lots_to_answer):
            raise ValueError(
                f"region {response.region} gave {len(response.answers)} answers to the"
                f" {len(auction_round.lots_to_answer)} lots of round {auction_round.number}"
            )
        answered[response.region] = response
    return answered


def _decide_prefix(
    lots: Sequence[Lot],
    answered: Mapping[RegionId, RegionResponse],
    absent: tuple[RegionId, ...],
    holders: Holders | None,
) -> tuple[_Decided, ...]:
    """Verdicts in queue order, up to the first lot of which some region's response does not say what it would answer now."""
    said = {region: ConditionalAnswers(response, lots) for region, response in answered.items()}
    decided: list[_Decided] = []
    for position, lot in enumerate(lots):
        answers = {region: answer for region, one in said.items() if (answer := one.to(position)) is not None}
        # A region that has won otherwise than it had assumed would plan this lot on another capacity: what depends on that says
        # nothing. The lots from here on are put up again, with better guesses.
        if len(answers) < len(said):
            break
        verdict = decide_lot(lot, answers, absent, holders)
        decided.append((verdict, answers))
        if isinstance(verdict, Won):
            said[verdict.winner].win(position, answers[verdict.winner])
    return tuple(decided)


def bid_rank(score: Score, region: RegionId) -> tuple[Score, RegionId]:
    """The bid of the smallest rank wins: the best score, ties go to the region first by name."""
    return score, region


def decide_lot(
    lot: Lot,
    answers: Mapping[RegionId, Answer],
    absent: tuple[RegionId, ...] = (),
    holders: Holders | None = None,
) -> Verdict:
    """Which region wins one lot, given what each region answered and which ones did not; `answers` by name of region.

    `holders` as for `close_round`.
    """
    bids = [(answer.score, region, answer.summary) for region, answer in answers.items() if isinstance(answer, Bid)]
    bids.sort(key=lambda bid: bid_rank(bid[0], bid[1]))
    if bids:
        return _won(lot, answers, bids, absent)
    name = lot.workload.workload
    reasons = _reasons(answers, absent)
    diagnosis = _closest_of(answers, absent)
    if diagnosis is None:
        return Waiting(
            lot,
            Diagnosis(Reason.NO_ANSWER),
            f"No region answered to the auction of {name}: {reasons or 'no region took part'}.",
        )
    if any(isinstance(answer, NoPlan) for answer in answers.values()):
        return Waiting(lot, diagnosis, f"No region has room for {name} now: {reasons}.")
    missing_tables = tuple(
        (region, answer.missing_tables)
        for region, answer in answers.items()
        if isinstance(answer, Abandoned) and answer.reason is Reason.NO_DATA
    )
    if missing_tables:
        unheard = [region for region in (absent if holders is None else holders(lot)) if region not in answers]
        if unheard:
            who = ", ".join(unheard)
            sentence = f"{who} may hold the tables of {name} and did not answer: {reasons}."
            return Waiting(lot, Diagnosis(Reason.NO_ANSWER, unheard[0]), sentence)
        return AwaitingData(
            lot, missing_tables, diagnosis, f"No region that could run {name} has its tables: {reasons}."
        )
    # It was accepted, so that some region had it then.
    sentence = f"No region may run {name}, or has the hardware for it any more: {reasons}; it waits until one has."
    return Waiting(lot, diagnosis, sentence)


def _won(
    lot: Lot,
    answers: Mapping[RegionId, Answer],
    bids: Sequence[tuple[Score, RegionId, PlanSummary]],
    absent: tuple[RegionId, ...],
) -> Won:
    score, winner, summary = bids[0]
    if len(bids) == 1:
        reason, because = WinReason.ONLY_BID, "the only bid"
    else:
        next_score, next_region, _ = bids[1]
        field = first_difference(score, next_score)
        if field is None:
            reason, because = WinReason.FIRST_BY_NAME, f"the same score as {next_region}, and the name comes first"
        else:
            ours, theirs = _shown(getattr(score, field)), _shown(getattr(next_score, field))
            reason = WinReason.BETTER_SCORE
            because = f"{field} {ours} against {theirs} of {next_region}, the best of {len(bids) - 1} other bids"
    others = _reasons({region: answer for region, answer in answers.items() if not isinstance(answer, Bid)}, absent)
    sentence = (
        f"{winner} won {lot.workload.workload} with {summary.machines} machines in"
        f" {', '.join(summary.clusters)} and {summary.evictions} evictions: {because}"
        + (f"; {others}." if others else ".")
    )
    return Won(lot, winner, score, summary, reason, sentence)


def first_difference(ours: Score, theirs: Score) -> str | None:
    """The most important field in which two scores differ; None when they are the same."""
    return next((name for name in Score._fields if getattr(ours, name) != getattr(theirs, name)), None)


def _shown(value: float | tuple[int, ...]) -> str:
    return "(" + " ".join(map(str, value)) + ")" if isinstance(value, tuple) else f"{value:g}"


def _closest_of(answers: Mapping[RegionId, Answer], absent: tuple[RegionId, ...]) -> Diagnosis | None:
    """What the closest region says, and in it what each of several says; None: none has answered."""
    said = [answer.diagnosis for answer in answers.values() if not isinstance(answer, Bid)]
    nearest = closest(said)
    if nearest is None or len(said) + len(absent) < 2:
        return nearest
    silent = [Diagnosis(Reason.NO_ANSWER, region) for region in absent]
    return replace(nearest, by_region=tuple(sorted([*said, *silent], key=lambda one: one.region or "")))


def _reasons(answers: Mapping[RegionId, Answer], absent: tuple[RegionId, ...]) -> str:
    """Why each of these regions did not bid."""
    said = [f"{region}: {answer.sentence}" for region, answer in answers.items() if not isinstance(answer, Bid)]
    said.extend(f"{region}: no answer by the deadline" for region in absent)
    return "; ".join(said)
