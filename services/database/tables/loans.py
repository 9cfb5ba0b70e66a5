"""Loans of inference clusters: what their inference sides said last, its history, and the machines on the way back."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Float, ForeignKey, Integer, Table, Text, text

from services.database.tables.definition import METADATA, NAME, key, optional, required

LOANS: Final = Table(
    "loans",
    METADATA,
    key("cluster", NAME, ForeignKey("clusters.cluster", ondelete="CASCADE")),
    # When its inference side was asked last, and when it answered last; null: never.
    required("asked_s", Float),
    optional("answered_s", Float),
    # What it said last.
    required("needed_machines", Integer, server_default=text("0")),
    optional("reclaim_within_s", Float),
    # What followed: the share that will be needed at the next look, and how many machines are to be on loan.
    required("forecast", Float, server_default=text("0")),
    required("wanted_on_loan", Integer, server_default=text("0")),
    # Machines that inference needs and the cluster does not have.
    required("shortfall", Integer, server_default=text("0")),
    # Why no more is lent; empty: nothing is wrong.
    required("problem", Text, server_default=text("''")),
)

INFERENCE_LOADS: Final = Table(
    "inference_loads",
    METADATA,
    key("cluster", NAME, ForeignKey("clusters.cluster", ondelete="CASCADE")),
    key("t_s", Float),
    # The share of the cluster's machines that inference needed.
    required("load", Float),
)

RETURNING_MACHINES: Final = Table(
    "returning_machines",
    METADATA,
    key("machine", NAME, ForeignKey("machines.machine", ondelete="CASCADE")),
    required("asked_back_s", Float),
    # From then on what is still on it is ended; null: it may take its time.
    optional("deadline_s", Float),
)
