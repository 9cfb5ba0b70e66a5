"""A region's turn in the auctions begins with one transaction: what it has won is dispatched, and the open round is read.

Both in one, because a region far from the database waits for it at every transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.clock import Clock
from regional_scheduler.dispatching import StartWith
from regional_scheduler.rounds import Lot
from services.database.engine import Database
from services.database.pipeline import together
from services.regional_scheduler.auctioneering import Auctioneer, AuctionLook
from services.regional_scheduler.dispatching import Dispatched, dispatch_awards
from services.regional_scheduler.region_memory import RegionMemory


@dataclass(frozen=True, slots=True)
class AuctionTurn:
    """What was dispatched, and what is to be done in the auctions on top of it."""

    looked: AuctionLook
    dispatched: Dispatched | None = None
    """None: there was nothing."""
    lots: Sequence[Lot] | None = None
    """Of the open round, if it wants an answer of the region."""
    goes_on: bool = True
    """Whether everything that was won is dispatched: only then may the round be answered (I11)."""


async def begin_turn(
    database: Database,
    memory: RegionMemory,
    auctioneer: Auctioneer,
    clock: Clock,
    start: StartWith | None = None,
    *,
    holds_quota: bool = False,
) -> AuctionTurn:
    """Dispatches what the region has won, if fleet, tenants and tables are still those of its memory, and looks at the round.

    `start` and `holds_quota` are as for `dispatch_awards`, and so is what is raised; the caller adds what was dispatched to its attempts.
    """
    async with database.transaction(pipelined=True) as connection:
        looked = await auctioneer.look(connection)
        if not looked.has_awards:
            return AuctionTurn(looked, lots=await auctioneer.lots_to_answer(connection, looked))
        if looked.revisions != memory.revisions:
            # First that is taken over, then what was won is dispatched on it.
            return AuctionTurn(looked, goes_on=False)
        # Plans are made in a thread: questions wait meanwhile.
        async with memory.steady:
            dispatched, lots = await together(
                connection,
                dispatch_awards(
                    connection,
                    memory.region.region,
                    looked.awards,
                    memory.bidder,
                    memory.specifications,
                    memory.tenants,
                    memory.live,
                    clock,
                    memory.works,
                    start,
                    memory.asked,
                    holds_quota=holds_quota,
                ),
                auctioneer.lots_to_answer(connection, looked),
            )
    return AuctionTurn(looked, dispatched, lots, goes_on=looked.dispatches_all)
