"""Auction rounds, what regions bid in them, and what they won."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, DateTime, Float, ForeignKey, Index, Integer, Table, text
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
    # A region's answer to a round.
    "auction_responses",
    METADATA,
    key("round", BigInteger, ForeignKey("auction_rounds.round", ondelete="CASCADE")),
    key("region", NAME),
    required("response", DOCUMENT),
)

BIDS: Final = Table(
    # One region's bid for one lot, and what came of it: won, lost, or carried into the next round.
    "bids",
    METADATA,
    key("round", BigInteger, ForeignKey("auction_rounds.round", ondelete="CASCADE")),
    key("workload", NAME),
    key("region", NAME),
    required("score", DOCUMENT),
    required("outcome", NAME),
    Index("bids_workload", "workload", "round"),
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
