"""The event log."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Float, Identity, Index, Integer, SmallInteger, Table, text

from services.database.tables.definition import DOCUMENT, METADATA, NAME, key, optional, required

EVENTS: Final = Table(
    # Append-only.
    "events",
    METADATA,
    # Taken when the event is appended, after whatever its transaction waited for: so a cause always stands before its
    # effect. How readers avoid to miss an event that commits late is event_store's business.
    key("sequence", BigInteger, Identity()),
    required("t", Float),
    required("event", NAME),
    optional("workload", NAME),
    optional("attempt", Integer),
    optional("tenant", NAME),
    optional("priority", SmallInteger),
    optional("level", SmallInteger),
    optional("region", NAME),
    optional("cluster", NAME),
    # What only some kinds of event have.
    required("details", DOCUMENT),
    Index("events_workload", "workload", "sequence"),
    Index("events_tenant", "tenant", "sequence", postgresql_where=text("tenant IS NOT NULL")),
    Index("events_kind", "event", "sequence"),
    # Events come nearly in the order of their times: so little says which blocks are old.
    Index("events_time", "t", postgresql_using="brin"),
    # Hardly ever has a row: so that counting violations reads nothing else.
    Index("events_invariant_broken", "region", postgresql_where=text("event = 'invariant_broken'")),
)
