"""Auction rounds, what regions answered to them, and what they won."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, DateTime, Float, ForeignKey, Index, Integer, SmallInteger, Table, Text, text
from sqlalchemy.dialects.postgresql import ARRAY

from services.database.tables.definition import DOCUMENT, METADATA, NAME, key, optional, required

AUCTION_ROUNDS: Final = Table(
    # At most one is open. Any region closes it when every participant has answered or the deadline has passed.
    "auction_rounds",
    METADATA,
    key("round", BigInteger),
    required("scan_pass", BigInteger),
    required("opened_at", DateTime(timezone=True)),
    required("deadline_at", DateTime(timezone=True)),
    # The service's time that every region plans this round with.
    required("now_s", Float),
    required("participants", ARRAY(NAME)),
    # In queue order: workload, position, expected_winner.
    required("lots", DOCUMENT),
    optional("closed_at", DateTime(timezone=True)),
    optional("closed_by", NAME),
    optional("outcome", DOCUMENT),
    Index("auction_rounds_open", text("(closed_at IS NULL)"), unique=True, postgresql_where=text("closed_at IS NULL")),
)

AUCTION_RESPONSES: Final = Table(
    # A region's answer to a round, with its bids: what came of each is in the round's outcome.
    "auction_responses",
    METADATA,
    key("round", BigInteger, ForeignKey("auction_rounds.round", ondelete="CASCADE")),
    key("region", NAME),
    required("response", DOCUMENT),
)

AWARDS: Final = Table(
    # A lot that a region won and has not dispatched yet. Deleted in the dispatching transaction.
    "awards",
    METADATA,
    key("workload", NAME, ForeignKey("workloads.workload", ondelete="CASCADE")),
    required("region", NAME, index=True),
    required("round", BigInteger),
    # Position in the round's window: awards are dispatched in this order.
    required("lot", Integer),
)

AUCTION_REFUSALS: Final = Table(
    # A kind of workloads that no region has room for, at this standing or a worse one: none of it is put up. A region that
    # may have room again says so.
    "auction_refusals",
    METADATA,
    key("kind", NAME),
    # Empty: it is the same for all tenants.
    key("tenant", NAME),
    key("within_quota", Boolean),
    required("priority", SmallInteger),
    required("level", SmallInteger),
    # False: some region may have room again; and whether one has.
    required("holds", Boolean),
    required("has_room", Boolean),
    # The walk and the round in which one of it was asked last.
    required("walk", BigInteger),
    required("round", BigInteger),
    # Whom the reason names, and what became of it.
    required("workload", NAME),
    required("state", NAME),
    required("reason", Text),
    required("diagnosis", DOCUMENT),
)

AUCTION_WALKS: Final = Table(
    # How far the auctions are along the queue. There is one row; its lock is that of opening a round.
    "auction_walks",
    METADATA,
    key("name", NAME),
    required("walk", BigInteger),
    # The newest that the walk has gone back to the head for.
    required("scan_pass", BigInteger),
    required("ended", Boolean),
    # The last round began at the head.
    required("at_head", Boolean),
)
