"""Notifications: whom workloads want to be told, what is still to be sent, and up to where the event log has been read for it."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Float, Index, Integer, Table, Text, text
from sqlalchemy.dialects.postgresql import ARRAY

from services.database.tables.definition import METADATA, NAME, REWRITTEN, key, optional, required

NOTIFIED_WORKLOADS: Final = Table(
    # One row for each workload that wants somebody to be told. No foreign keys: retention takes this out with the workload.
    "notified_workloads",
    METADATA,
    key("workload", NAME),
    # It may be a secret: nothing shows it.
    required("url", Text),
    required("host", NAME),
    # domain.notification.Occasion
    required("events", ARRAY(Text)),
    required("delivered", Integer, server_default=text("0")),
    required("given_up", Integer, server_default=text("0")),
    # Why the last one failed; empty: none did since one was delivered.
    required("error", Text, server_default=text("''")),
    postgresql_with=REWRITTEN,
)

NOTIFICATION_DELIVERIES: Final = Table(
    # What is to be sent, by workload in the order of its events. Delivered or given up: no row any more. Times are real.
    "notification_deliveries",
    METADATA,
    key("workload", NAME),
    # Of the event.
    key("sequence", BigInteger),
    required("host", NAME),
    required("body", Text),
    required("made_real_s", Float),
    required("tries", Integer, server_default=text("0")),
    required("due_real_s", Float),
    # Since when it has failed; null: it was not tried yet.
    optional("failing_since_real_s", Float),
    Index("notification_deliveries_due", "due_real_s"),
    postgresql_with=REWRITTEN,
)

NOTIFICATION_PROGRESS: Final = Table(
    # One row: what happened up to that place of the event log stands in notification_deliveries, or has been sent.
    "notification_progress",
    METADATA,
    key("one", Boolean),
    required("through_sequence", BigInteger),
)
