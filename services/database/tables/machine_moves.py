"""Machines to clusters: what the clusters of a region ask for, what was decided, and the machines on their way."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, CheckConstraint, Float, ForeignKey, Table

from domain.machine_moves import MoveState
from services.database.tables.definition import DOCUMENT, METADATA, NAME, key, optional, required

MACHINE_REQUESTS: Final = Table(
    "machine_requests",
    METADATA,
    key("region", NAME, ForeignKey("regions.region", ondelete="CASCADE")),
    # As in requests.yaml (`formats.capacity_requests_file`).
    required("requests", DOCUMENT),
    # Grows with every application.
    required("revision", BigInteger),
    required("applied_s", Float),
    # When it was last decided which machines belong where, and what came of it; null: not yet.
    optional("decided_s", Float),
    optional("decision", DOCUMENT),
)

MACHINE_MOVES: Final = Table(
    "machine_moves",
    METADATA,
    key("machine", NAME, ForeignKey("machines.machine", ondelete="CASCADE")),
    required("region", NAME, index=True),
    required("from_cluster", NAME),
    required("to_cluster", NAME),
    required("state", NAME),
    required("decided_s", Float),
    # From then on what is still on it has to leave; null: it does not drain yet.
    optional("deadline_s", Float),
    CheckConstraint(f"state IN ({', '.join(repr(state.value) for state in MoveState)})", name="machine_moves_state"),
)
