"""Opening a round against the database: over what follows in the queue, wherever the walk along it stands (decision 062)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import structlog

from domain.clock import Clock
from domain.identifiers import RegionId, WorkloadId
from domain.workload import Workload
from regional_scheduler.auction import RoundOutcome
from regional_scheduler.queue_walk import QueueWalk, WalkStep, next_step
from regional_scheduler.round_opening import open_round
from regional_scheduler.rounds import Lot, Round
from services.configuration import AuctionConfiguration
from services.database import auction_store, award_store, lease_store, refusal_store
from services.database.auction_documents import lot_from_document
from services.database.auction_store import AuctionProgress, QueuedLot, SortKey, StoredRound
from services.database.channels import AUCTION_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.pipeline import together
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.undecided_lots import mark_alike

ASKED_WITHOUT_GUESSES = 16
"""So many lots are asked at first where nothing is known of who may win them: all regions assume to win each, and few are decided."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Following:
    """What followed in the queue behind the last decided lot, as it was read to close a round."""

    scan_pass: int
    walk: QueueWalk
    lots: list[Lot]

    def is_next(self, step: WalkStep, newest_scan_pass: int) -> bool:
        """Whether the next round of this step is over these: the queue has its order still, and there are any.

        The round's own lots stand first, as the queue was when it was opened: what was ranked anew since may follow once more.
        """
        keys = [lot.position.sort_key for lot in self.lots]
        return (
            bool(keys)
            and len({lot.position.workload for lot in self.lots}) == len(keys)
            and not step.from_head
            and (step.walk.number, newest_scan_pass) == (self.walk.number, self.scan_pass)
            and all(earlier < later for earlier, later in pairwise(keys))
        )


@dataclass(frozen=True, slots=True)
class AuctionStand:
    """How the auctions stand while their walk is locked: no other transaction opens a round until this one ends."""

    walk: QueueWalk
    progress: AuctionProgress
    has_room: bool
    """Whether some region has room again for what was refused."""
    participants: tuple[RegionId, ...]

    def after(self, outcome: RoundOutcome, next_window: int) -> AuctionStand:
        """The same when a round has come to this."""
        progress = auction_store.progress_after(outcome, self.progress.newest_scan_pass, next_window)
        return replace(self, progress=progress)


class RoundOpener:
    """Opens rounds, in the transactions of those who have found that none is open."""

    def __init__(self, memory: RegionMemory, clock: Clock, configuration: AuctionConfiguration) -> None:
        self._memory = memory
        self._clock = clock
        self._configuration = configuration

    async def open_next(self, connection: AnyConnection) -> bool:
        """Opens the next round over what follows in the queue; False when there is nothing to do at once."""
        walk, progress, has_room, participants = await together(
            connection,
            refusal_store.lock_walk(connection),
            auction_store.load_progress(connection),
            refusal_store.any_has_room(connection),
            lease_store.live_regions(connection),
        )
        return await self.open_on(connection, AuctionStand(walk, progress, has_room, participants))

    async def open_on(self, connection: AnyConnection, stand: AuctionStand, known: Following | None = None) -> bool:
        """The same where it is known how the auctions stand; `known` is what followed when the round before was closed, in the
        same transaction.
        """
        walk, progress, has_room = stand.walk, stand.progress, stand.has_room
        if progress.newest_scan_pass is None or progress.is_open:
            return False
        step = next_step(walk, progress.newest_scan_pass, has_room=has_room)
        if step is None:
            return False
        if step.begins:
            await refusal_store.forget_reopened(connection)
        if step.from_head:
            await self._give_back_awards(connection)
        settings = self._configuration.settings()
        if known is not None and known.is_next(step, progress.newest_scan_pass):
            queued = known.lots
        else:
            after = None if step.from_head else progress.cursor
            queued = await self._queued(connection, after, settings.window + 1, step)
        if not queued and (has_room or step.walk.scan_pass != progress.newest_scan_pass) and not step.from_head:
            # Nothing is left behind; but at the head there is.
            await refusal_store.store_walk(connection, step.walk)
            return True
        if not queued:
            marked = await mark_alike(connection, self._clock)
            # There may be more to tell: then the walk comes to its end by the next step.
            ended = marked < refusal_store.MARKED_AT_ONCE
            await refusal_store.store_walk(connection, replace(step.walk, ended=ended))
            return not ended
        opened = open_round(
            number=progress.next_number,
            scan_pass=progress.newest_scan_pass,
            now=self._clock.now(),
            settings=settings,
            participants=stand.participants,
            upcoming=queued,
            # Guesses stay good ones when the order has changed; they never change what is decided.
            hints=progress.hints,
            hints_of_kinds=progress.hints_of_kinds,
            runs_alone=progress.runs_alone,
            # What follows the guesses of the round before; at the head of a queue that was ranked anew, nothing is known.
            asked=ASKED_WITHOUT_GUESSES if step.from_head else progress.next_window or ASKED_WITHOUT_GUESSES,
        )
        await self._insert(connection, progress, opened)
        if step.walk != walk:
            await refusal_store.store_walk(connection, step.walk)
        wake_after_commit(connection, AUCTION_CHANNEL)
        return True

    async def _give_back_awards(self, connection: AnyConnection) -> None:
        """What absent regions have won, and regions that the fleet has no more, is put up again: it would wait for good."""
        served = await lease_store.served_regions(connection, lease_store.ABSENCE_REAL_S)
        given_back = await award_store.give_back_awards(connection, served)
        if given_back:
            _log.warning("awards of absent regions are put up again", awards=given_back)

    async def _queued(self, connection: AnyConnection, after: SortKey | None, limit: int, step: WalkStep) -> list[Lot]:
        """So many lots behind this place in the queue, or from its head on, that this step may put up for auction."""
        queued = await auction_store.upcoming_lots(
            connection, after, limit, self._clock.now(), step.walk.number, again=step.asks_again
        )
        return await self.as_lots(connection, queued)

    async def as_lots(self, connection: AnyConnection, queued: Sequence[QueuedLot]) -> list[Lot]:
        """These entries of the queue with what they ask for."""
        workloads = await self._asked(connection, [lot.position.workload for lot in queued])
        return [Lot(workloads[lot.position.workload], lot.position, lot.attempt, kind=lot.kind) for lot in queued]

    async def _insert(self, connection: AnyConnection, progress: AuctionProgress, opened: Round) -> None:
        await auction_store.insert_round(
            connection,
            number=progress.next_number,
            scan_pass=opened.scan_pass,
            now_s=opened.opened_s,
            participants=opened.participants,
            lots=opened.lots,
            asked=len(opened.lots_to_answer),
            reaches_end=opened.reaches_end,
            answer_timeout_real_s=self._configuration.answer_timeout_real_s,
        )

    async def lots(self, connection: AnyConnection, stored: StoredRound) -> tuple[Lot, ...]:
        """The lots of the round with what they ask for."""
        names = [WorkloadId(document["workload"]) for document in stored.lots]
        workloads = await self._asked(connection, names)
        return tuple(
            lot_from_document(document, workloads[name]) for name, document in zip(names, stored.lots, strict=True)
        )

    async def _asked(self, connection: AnyConnection, names: Sequence[WorkloadId]) -> dict[WorkloadId, Workload]:
        """These workloads with what they ask for."""
        workloads = await self._memory.specifications.workloads(connection, names)
        return {name: self._memory.asked(workload) for name, workload in workloads.items()}


def as_round(stored: StoredRound, lots: Sequence[Lot]) -> Round:
    """The round as the core knows it. Its deadline in the service's time is a formality: the real one is the
    database server's, so that it means the same to all regions and however fast the service's clock runs."""
    return Round(
        number=stored.number,
        scan_pass=stored.scan_pass,
        opened_s=stored.now_s,
        deadline_s=stored.now_s + 1.0,
        participants=stored.participants,
        lots=tuple(lots),
        reaches_end=stored.reaches_end,
        asked=stored.asked,
    )
