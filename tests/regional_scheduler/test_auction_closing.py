"""Closing a round: who wins, what waits and why, and how far the answers reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.diagnosis import Diagnosis, Reason
from domain.identifiers import AttemptNumber, ClusterId, GpuModel, JobName, RegionId, TableId, TenantId, WorkloadId
from domain.placement import Score
from domain.rank import QueuePosition, Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from regional_scheduler.auction import (
    AwaitingData,
    NotYet,
    RoundOutcome,
    Waiting,
    WinReason,
    Won,
    close_round,
    decide_lot,
)
from regional_scheduler.idle_outline import IdleMachines
from regional_scheduler.round_opening import open_round
from regional_scheduler.rounds import (
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

EAST, WEST, NORTH = RegionId("east"), RegionId("west"), RegionId("north")
NOT_ALLOWED = Abandoned(Diagnosis(Reason.REGION_NOT_ALLOWED), "the workload names other regions")
NO_HARDWARE = Abandoned(Diagnosis(Reason.TASK_TOO_LARGE), "no machine has 16 GPUs")
NO_DATA = Abandoned(Diagnosis(Reason.NO_DATA, tables=(TableId("clicks"),)), "clicks is not here")
FULL = NoPlan(Diagnosis(Reason.NO_ROOM), "8 GPUs asked, 3 free", assumes_wins=False)
FULL_WITH_WINS = replace(FULL, assumes_wins=True)
TOGETHER = replace(FULL, diagnosis=Diagnosis(Reason.NO_ROOM_TOGETHER))
HELD = replace(FULL, diagnosis=Diagnosis(Reason.HELD_FOR_OTHERS))


def bid(load: float) -> Bid:
    return Bid(Score(load=load), PlanSummary((ClusterId("c"),), machines=2, evictions=0))


def lot(number: int, expected_winner: RegionId | None = None) -> Lot:
    name = WorkloadId(f"w{number}")
    job = JobSpecification(JobName("train"), 1, TaskResources(gpus=number + 1), Emulated(1.0))
    specification = WorkloadSpecification(name, TenantId("t"), (job,))
    position = QueuePosition(name, Standing(1, 0), 0.0, float(number), within_quota=True)
    return Lot(Workload(name, specification, float(number)), position, AttemptNumber(1), expected_winner)


def a_round(lots: int, *regions: RegionId, reaches_end: bool = True) -> Round:
    return Round(7, 3, 100.0, 102.0, tuple(sorted(regions)), tuple(lot(number) for number in range(lots)), reaches_end)


def response(
    region: RegionId, answers: Sequence[Answer], assumed: Sequence[int] = (), idle: Sequence[IdleMachines] = ()
) -> RegionResponse:
    assumed_wins = tuple(WorkloadId(f"w{number}") for number in assumed)
    return RegionResponse(7, region, 100.5, tuple(answers), assumed_wins, gpus=64, cpus=512.0, idle=tuple(idle))


def closed(auction_round: Round, answers: Mapping[RegionId, RegionResponse], now: float = 101.0) -> RoundOutcome:
    outcome = close_round(auction_round, list(answers.values()), now)
    assert isinstance(outcome, RoundOutcome)
    return outcome


def one_lot(answers: Mapping[RegionId, Answer], absent: Sequence[RegionId] = ()) -> RoundOutcome:
    """A round of one lot with these answers, closed when everybody had the time to give one."""
    auction_round = a_round(1, *answers, *absent)
    responses = {region: response(region, [answer]) for region, answer in answers.items()}
    return closed(auction_round, responses, now=auction_round.deadline_s)


# ---------------------------------------------------------------- one lot


def test_the_best_score_wins_and_says_in_what_it_is_better() -> None:
    [verdict] = one_lot({EAST: bid(0.5), WEST: bid(0.25), NORTH: FULL}).verdicts
    assert isinstance(verdict, Won)
    assert (verdict.winner, verdict.reason) == (WEST, WinReason.BETTER_SCORE)
    assert verdict.sentence == (
        "west won w0 with 2 machines in c and 0 evictions: load 0.25 against 0.5 of east, the best of 1 other bids; "
        "north: 8 GPUs asked, 3 free."
    )


def test_a_single_bid_wins() -> None:
    [verdict] = one_lot({EAST: NOT_ALLOWED, WEST: bid(0.9)}).verdicts
    assert isinstance(verdict, Won)
    assert (verdict.winner, verdict.reason) == (WEST, WinReason.ONLY_BID)


def test_the_same_score_goes_to_the_region_first_by_name() -> None:
    [verdict] = one_lot({WEST: bid(0.5), EAST: bid(0.5)}).verdicts
    assert isinstance(verdict, Won)
    assert (verdict.winner, verdict.reason) == (EAST, WinReason.FIRST_BY_NAME)


def test_without_any_bid_the_workload_waits_and_every_region_says_why() -> None:
    [verdict] = one_lot({EAST: FULL, WEST: NO_DATA, NORTH: NO_HARDWARE}).verdicts
    assert isinstance(verdict, Waiting)
    assert verdict.reason is Reason.NO_ROOM
    assert verdict.sentence == (
        "No region has room for w0 now: east: 8 GPUs asked, 3 free; north: no machine has 16 GPUs; "
        "west: clicks is not here."
    )


def test_when_only_data_is_missing_the_workload_awaits_it() -> None:
    [verdict] = one_lot({EAST: NO_DATA, WEST: NO_HARDWARE, NORTH: NOT_ALLOWED}).verdicts
    assert isinstance(verdict, AwaitingData)
    assert verdict.missing_tables == ((EAST, (TableId("clicks"),)),)
    assert (verdict.diagnosis.reason, verdict.diagnosis.tables) == (Reason.NO_DATA, ("clicks",))
    assert "clicks is not here" in verdict.sentence


def test_no_workload_awaits_data_that_a_region_may_hold_which_did_not_answer() -> None:
    [verdict] = one_lot({EAST: NO_DATA, NORTH: NOT_ALLOWED}, absent=[WEST]).verdicts
    assert isinstance(verdict, Waiting)
    assert verdict.diagnosis == Diagnosis(Reason.NO_ANSWER, WEST)
    assert verdict.sentence.startswith("west may hold the tables of w0 and did not answer: ")


@pytest.mark.parametrize(("holders", "awaits"), [([], True), ([EAST], True), ([WEST], False), ([NORTH, WEST], False)])
def test_only_regions_that_hold_the_data_are_waited_for_whether_they_take_part_or_not(
    holders: list[RegionId], awaits: bool
) -> None:
    verdict = decide_lot(lot(0), {EAST: NO_DATA}, (NORTH,), lambda _: holders)
    assert isinstance(verdict, AwaitingData if awaits else Waiting)
    expected = (
        Diagnosis(Reason.NO_DATA, tables=(TableId("clicks"),)) if awaits else Diagnosis(Reason.NO_ANSWER, holders[0])
    )
    assert verdict.diagnosis == expected


def test_when_no_region_may_run_it_the_workload_waits_without_asking_for_data() -> None:
    [verdict] = one_lot({EAST: NO_HARDWARE, WEST: NOT_ALLOWED}).verdicts
    assert isinstance(verdict, Waiting)
    assert verdict.reason is Reason.TASK_TOO_LARGE


def test_when_no_region_answers_the_workload_waits() -> None:
    outcome = one_lot({}, absent=[EAST, WEST])
    [verdict] = outcome.verdicts
    assert isinstance(verdict, Waiting)
    assert verdict.diagnosis == Diagnosis(Reason.NO_ANSWER)
    assert outcome.absent == (EAST, WEST)
    assert "east: no answer by the deadline" in verdict.sentence


def test_an_absent_region_counts_as_having_abandoned() -> None:
    [verdict] = one_lot({EAST: bid(0.9)}, absent=[WEST]).verdicts
    assert isinstance(verdict, Won)
    assert verdict.winner == EAST
    assert "west: no answer by the deadline" in verdict.sentence


# ---------------------------------------------------------------- when a round can be closed


def test_a_round_waits_for_absent_regions_until_the_deadline() -> None:
    auction_round = a_round(1, EAST, WEST)
    responses = [response(EAST, [bid(0.5)])]
    assert close_round(auction_round, responses, 101.9) == NotYet((WEST,), 102.0)
    assert isinstance(close_round(auction_round, responses, 102.0), RoundOutcome)


def test_a_round_that_all_have_answered_waits_for_nothing() -> None:
    responses = [response(EAST, [bid(0.5)]), response(WEST, [FULL])]
    assert isinstance(close_round(a_round(1, EAST, WEST), responses, 100.0), RoundOutcome)


def test_the_order_of_the_responses_does_not_matter() -> None:
    auction_round = a_round(2, EAST, WEST, NORTH)
    responses = [response(region, [bid(0.5), FULL]) for region in (EAST, WEST, NORTH)]
    assert close_round(auction_round, responses, 101.0) == close_round(auction_round, responses[::-1], 101.0)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ([replace(response(EAST, [FULL]), round_number=6)], "a response to round 6 cannot close round 7"),
        ([response(NORTH, [FULL])], "region north does not participate in round 7"),
        ([response(EAST, [FULL]), response(EAST, [FULL])], "region east answered round 7 twice"),
        ([response(EAST, [FULL, FULL])], "region east gave 2 answers to the 1 lots of round 7"),
    ],
)
def test_a_response_that_does_not_belong_to_the_round_is_refused(wrong: list[RegionResponse], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        close_round(a_round(1, EAST, WEST), wrong, 101.0)


# ---------------------------------------------------------------- how far the answers reach


def test_the_window_is_decided_as_far_as_assumptions_came_true() -> None:
    """East assumed the first two; it wins the first and loses the second: its answer to the third is worthless."""
    answers = {
        EAST: response(EAST, [bid(0.1), bid(0.6), bid(0.3)], assumed=[0, 1]),
        WEST: response(WEST, [bid(0.2), bid(0.2), bid(0.9)], assumed=[1]),
    }
    outcome = closed(a_round(3, EAST, WEST), answers)
    assert [verdict.winner for verdict in outcome.verdicts if isinstance(verdict, Won)] == [EAST, WEST]
    assert outcome.cursor == lot(1).position
    assert [carried.workload.workload for carried in outcome.carried_over] == ["w2"]
    assert not outcome.exhausted


def test_what_a_region_won_without_having_assumed_it_makes_its_later_answers_worthless() -> None:
    answers = {EAST: response(EAST, [bid(0.1), bid(0.1)]), WEST: response(WEST, [bid(0.2), bid(0.2)])}
    assert len(closed(a_round(2, EAST, WEST), answers).verdicts) == 1


def test_a_region_that_abandons_needs_no_assumptions() -> None:
    answers = {
        EAST: response(EAST, [bid(0.1), NO_DATA, NO_HARDWARE]),
        WEST: response(WEST, [bid(0.2), bid(0.2), FULL]),
    }
    outcome = closed(a_round(3, EAST, WEST), answers)
    assert len(outcome.verdicts) == 3
    assert outcome.exhausted


def test_a_refusal_without_any_win_placed_stands_whatever_is_won() -> None:
    answers = {EAST: response(EAST, [bid(0.1), FULL]), WEST: response(WEST, [FULL, FULL])}
    assert len(closed(a_round(2, EAST, WEST), answers).verdicts) == 2


def test_jobs_without_room_together_may_find_some_after_other_wins() -> None:
    """Each takes the best place for itself; when that is taken they may get along."""
    answers = {EAST: response(EAST, [bid(0.1), TOGETHER])}
    assert len(closed(a_round(2, EAST), answers).verdicts) == 1


def test_what_is_kept_for_a_gang_may_be_open_after_it_has_won_and_says_nothing_of_others() -> None:
    answers = {EAST: response(EAST, [bid(0.1), HELD])}
    assert len(closed(a_round(2, EAST), answers).verdicts) == 1
    assert closed(a_round(1, EAST), {EAST: response(EAST, [HELD])}).hopeless == ()
    assert len(closed(a_round(1, EAST), {EAST: response(EAST, [FULL])}).hopeless) == 1


def test_a_refusal_with_wins_placed_that_did_not_come_is_worth_nothing() -> None:
    answers = {
        EAST: response(EAST, [bid(0.9), FULL_WITH_WINS], assumed=[0]),
        WEST: response(WEST, [bid(0.2), FULL_WITH_WINS], assumed=[0]),
    }
    outcome = closed(a_round(2, EAST, WEST), answers)
    assert len(outcome.verdicts) == 1
    assert len(outcome.carried_over) == 1


def test_a_pass_is_exhausted_only_when_its_last_lot_is_decided() -> None:
    decided = {EAST: response(EAST, [FULL])}
    assert closed(a_round(1, EAST), decided).exhausted
    assert not closed(a_round(1, EAST, reaches_end=False), decided).exhausted


def test_a_round_without_lots_exhausts_the_pass() -> None:
    outcome = closed(a_round(0, EAST), {EAST: response(EAST, [])})
    assert outcome.exhausted
    assert outcome.verdicts == ()
    assert outcome.cursor is None


@st.composite
def answered_rounds(draw: st.DrawFn) -> tuple[Round, list[RegionResponse]]:
    """Rounds with any answers at all, also such as no honest region would give."""
    lots = draw(st.integers(1, 7))
    regions = draw(st.sets(st.sampled_from([EAST, WEST, NORTH])))
    loads = st.integers(0, 3).map(lambda quarters: bid(quarters / 4))
    others: list[Answer] = [FULL, FULL_WITH_WINS, TOGETHER, HELD, NO_DATA, NO_HARDWARE, NOT_ALLOWED]
    answer: st.SearchStrategy[Answer] = st.one_of(loads, loads, st.sampled_from(others))
    responses = [
        response(
            region,
            draw(st.lists(answer, min_size=lots, max_size=lots)),
            sorted(draw(st.sets(st.integers(0, lots - 1)))),
        )
        for region in sorted(regions)
    ]
    return a_round(lots, EAST, WEST, NORTH), responses


def rests_on_truth(names: Sequence[WorkloadId], winners: Sequence[RegionId | None], one: RegionResponse) -> bool:
    """Whether the answer to the lot after these decided ones was given under what has come true."""
    answer = one.answers[len(winners)]
    if isinstance(answer, Abandoned):
        return True
    of_one = Reason.NO_ROOM_TOGETHER, Reason.HELD_FOR_OTHERS
    if isinstance(answer, NoPlan) and not answer.assumes_wins and answer.reason not in of_one:
        return True
    won = {name for name, winner in zip(names, winners, strict=False) if winner == one.region}
    return won == {name for name in names[: len(winners)] if name in one.assumed_wins}


@given(answered_rounds())
def test_never_decides_a_lot_on_an_assumption_that_did_not_come_true(
    given_round: tuple[Round, list[RegionResponse]],
) -> None:
    """The rule of decision 003 word by word, and as many lots as it allows."""
    auction_round, responses = given_round
    outcome = closed(auction_round, {one.region: one for one in responses}, auction_round.deadline_s)
    names = [one.workload.workload for one in auction_round.lots]
    winners = [verdict.winner if isinstance(verdict, Won) else None for verdict in outcome.verdicts]
    assert winners, "the first lot is always decided"
    for index, winner in enumerate(winners):
        assert all(rests_on_truth(names, winners[:index], one) for one in responses)
        bids = sorted((answer.score, one.region) for one in responses if isinstance(answer := one.answers[index], Bid))
        assert winner == (bids[0][1] if bids else None)
    if len(winners) < len(names):
        assert not all(rests_on_truth(names, winners, one) for one in responses)
    assert [verdict.lot for verdict in outcome.verdicts] == list(auction_round.lots[: len(winners)])
    assert [one.workload.workload for one in outcome.carried_over] == names[len(winners) :]


# ---------------------------------------------------------------- opening


def test_a_round_takes_a_window_of_the_queue_and_the_hints_that_still_apply() -> None:
    opened = open_round(
        number=8,
        scan_pass=3,
        now=200.0,
        settings=AuctionSettings(window=2, answer_timeout_s=1.5),
        participants=[WEST, EAST],
        upcoming=[lot(0), lot(1), lot(2)],
        hints={WorkloadId("w0"): WEST, WorkloadId("w1"): NORTH, WorkloadId("gone"): EAST},
    )
    assert opened.participants == (EAST, WEST)
    assert opened.deadline_s == 201.5
    assert [one.expected_winner for one in opened.lots] == [WEST, None]
    assert not opened.reaches_end


def test_a_round_reaches_the_end_when_nothing_follows_its_window() -> None:
    opened = open_round(
        number=8,
        scan_pass=3,
        now=200.0,
        settings=AuctionSettings(window=2),
        participants=[EAST],
        upcoming=[lot(0), lot(1)],
        hints={},
    )
    assert opened.reaches_end
    assert len(opened.lots) == 2


@pytest.mark.parametrize(("window", "answer_timeout_s"), [(0, 1.0), (-1, 1.0), (1, 0.0), (1, float("nan"))])
def test_settings_that_make_no_sense_are_refused(window: int, answer_timeout_s: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        AuctionSettings(window, answer_timeout_s)


def test_lots_out_of_queue_order_are_refused() -> None:
    with pytest.raises(ValueError, match="not in queue order"):
        Round(7, 3, 100.0, 102.0, (EAST,), (lot(1), lot(0)), True)


def test_participants_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="not sorted and unique"):
        Round(7, 3, 100.0, 102.0, (WEST, EAST), (lot(0),), True)


# ---------------------------------------------------------------- guessing


def test_what_is_carried_over_is_expected_to_go_on_alternating_between_regions_alike() -> None:
    """Two empty regions alike, eight workloads alike: by load they win in turn."""
    lots = tuple(with_gpus(lot(number), 8) for number in range(8))
    auction_round = replace(a_round(0, EAST, WEST), lots=lots)
    offers = [bid(number / 8) for number in range(8)]
    idle = [IdleMachines(GpuModel("a100"), 8, 8, 8)]
    answers = {region: response(region, offers, assumed=range(8), idle=idle) for region in (EAST, WEST)}
    outcome = closed(auction_round, answers)
    assert [verdict.winner for verdict in outcome.verdicts if isinstance(verdict, Won)] == [EAST]
    assert [one.expected_winner for one in outcome.carried_over] == [WEST, EAST, WEST, EAST, WEST, EAST, WEST]


def test_what_follows_behind_the_window_gets_a_hint_too() -> None:
    responses = [response(EAST, [bid(0.1)], assumed=[0], idle=[IdleMachines(GpuModel("a100"), 8, 8, 2)])]
    outcome = close_round(a_round(1, EAST), responses, 101.0, [with_gpus(lot(9), gpus=1)])
    assert isinstance(outcome, RoundOutcome)
    assert outcome.hints() == {WorkloadId("w9"): EAST}


def with_gpus(one: Lot, gpus: int) -> Lot:
    """The lot with another shape."""
    job = JobSpecification(JobName("train"), 1, TaskResources(gpus=gpus), Emulated(1.0))
    specification = replace(one.workload.specification, jobs=(job,))
    return one._replace(workload=replace(one.workload, specification=specification))


# ---------------------------------------------------------------- how many lots next time


def window_after(decided: int, asked: int, hint: RegionId | None = EAST, largest: int = 64) -> int:
    """The advice of a round of so many lots of which so many were decided."""
    lots = tuple(lot(number, expected_winner=hint) for number in range(asked))
    wrong = response(EAST, [bid(0.1)] * asked, assumed=[number for number in range(asked) if number != decided - 1])
    outcome = closed(replace(a_round(0, EAST), lots=lots), {EAST: wrong})
    assert len(outcome.verdicts) == decided
    return outcome.next_window(AuctionSettings(window=largest))


def test_the_window_follows_how_far_the_guesses_went() -> None:
    assert window_after(decided=16, asked=16) == 64
    assert window_after(decided=10, asked=32) == 30
    assert window_after(decided=1, asked=32) == 4
    assert window_after(decided=30, asked=32) == 64
    assert window_after(decided=1, asked=2, largest=2) == 2


def test_a_round_without_guesses_says_nothing_about_them() -> None:
    assert window_after(decided=1, asked=32, hint=None) == 64
