"""How a round is cut from the queue: how many lots it puts up, and whom they are expected to go to (decisions 003 and 077)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from domain.identifiers import RegionId, WorkloadId
from regional_scheduler.alike_lots import LONG_RUN, leading_run
from regional_scheduler.auction import RoundOutcome
from regional_scheduler.refusals.kinds import WorkloadKind
from regional_scheduler.rounds import AuctionSettings, Lot, Round


def open_round(
    *,
    number: int,
    scan_pass: int,
    now: float,
    settings: AuctionSettings,
    participants: Sequence[RegionId],
    upcoming: Sequence[Lot],
    hints: Mapping[WorkloadId, RegionId],
    hints_of_kinds: Mapping[WorkloadKind, Sequence[RegionId]] = MappingProxyType({}),
    runs_alone: bool = True,
    asked: int | None = None,
) -> Round:
    """The round over the head of the queue.

    `upcoming` is what follows the cursor in queue order, at least one lot more than the window if there are so many
    (that one shows that the queue goes on). `hints` are the expected winners that the last round's outcome carried
    over; workloads that left the queue meanwhile, and regions that no longer participate, simply drop out. Of whom they
    say nothing, because the queue was ranked anew, the winner is expected that another one of its kind had in its place
    (`hints_of_kinds`): where regions look alike, a lot without a guess ends what the round can decide.

    A long run of lots that are alike is put up alone, and without guesses: then each region says what it would answer after
    any number of wins, and all lots are decided (`conditional_answers`). Not unless `runs_alone`: a region that tells all lots
    apart says it only of those wins that it assumes.
    """
    invited = tuple(sorted(set(participants)))
    lots = _with_guesses(upcoming[: settings.window], invited, hints, hints_of_kinds)
    run = leading_run(lots)
    if runs_alone and run >= LONG_RUN:
        lots = tuple(lot._replace(expected_winner=None) for lot in lots)
        if asked is None:
            lots = lots[:run]
        else:
            asked = run
    return Round(
        number=number,
        scan_pass=scan_pass,
        opened_s=now,
        deadline_s=now + settings.answer_timeout_s,
        participants=invited,
        lots=lots,
        reaches_end=len(upcoming) <= len(lots),
        asked=None if asked is None else min(asked, len(lots)),
    )


def continue_round(auction_round: Round, outcome: RoundOutcome) -> Round | None:
    """The same round over those of its lots that are not decided yet, with the guesses that its answers lead to; None: there are
    none, or not every region answers.
    """
    if not outcome.carried_over or outcome.absent:
        return None
    lots = outcome.carried_over
    run = leading_run(lots)
    if outcome.runs_alone and run >= LONG_RUN:
        return replace(auction_round, lots=lots, asked=run)
    return replace(auction_round, lots=lots, asked=None if outcome.reach is None else min(outcome.reach, len(lots)))


def _with_guesses(
    lots: Sequence[Lot],
    invited: Sequence[RegionId],
    hints: Mapping[WorkloadId, RegionId],
    hints_of_kinds: Mapping[WorkloadKind, Sequence[RegionId]],
) -> tuple[Lot, ...]:
    """The lots with their expected winners."""
    guessed: list[Lot] = []
    seen: Counter[WorkloadKind] = Counter()
    for lot in lots:
        expected = hints.get(lot.workload.workload)
        if lot.kind is not None:
            of_kind = hints_of_kinds.get(lot.kind, ())
            if expected is None and of_kind:
                expected = of_kind[seen[lot.kind] % len(of_kind)]
            seen[lot.kind] += 1
        guessed.append(lot._replace(expected_winner=expected if expected in invited else None))
    return tuple(guessed)
