"""What processes of the service agree by: leases, revisions, marks of commits."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, DateTime, Float, Integer, Table, Text

from services.database.tables.definition import DOCUMENT, METADATA, NAME, REWRITTEN, key, optional, required

LEASES: Final = Table(
    # Which process is `global`, `regional/<region>` or `cluster/<cluster>`, at which address, until when.
    "leases",
    METADATA,
    key("name", NAME),
    required("holder", NAME),
    required("address", Text),
    required("process_id", Integer),
    # Grows with each new holder: calls and writes with an older one are refused.
    required("token", BigInteger),
    required("held_since", DateTime(timezone=True)),
    required("expires_at", DateTime(timezone=True)),
    # Of a cluster: so many real seconds after its end at most tasks run on; null: nothing runs under it, or it was given
    # when that was not said yet.
    optional("tasks_stop_after_s", Float),
    # Of the secret that its holder was given with the number `secret_token`: orders in its name show both. Where that is not
    # the present number, or null, a program was the giver that knew of no secrets.
    optional("secret_hash", Text),
    optional("secret_token", BigInteger),
)

STANDBYS: Final = Table(
    # Which processes wait for which lease, at which address: each says so whenever it looks at the lease.
    "standbys",
    METADATA,
    key("name", NAME),
    key("holder", NAME),
    required("address", Text),
    required("process_id", Integer),
    required("since", DateTime(timezone=True)),
    # One that is not heard of again until then is none any more.
    required("seen_until", DateTime(timezone=True)),
)

SERVICE_SECRETS: Final = Table(
    # What processes of the service share and nobody else knows; made by the first that asks.
    "service_secrets",
    METADATA,
    key("name", NAME),
    required("secret", Text),
)

FITTING_PROGRAMS: Final = Table(
    # One row: programs whose newest migration is this one, or a later one, can work with the tables as they are.
    "fitting_programs",
    METADATA,
    key("one", Boolean),
    required("oldest_revision", NAME),
)

REVISIONS: Final = Table(
    # Grows with each change of `fleet`, `tenants` or `catalog`, so that every tier notices; also holds the service's
    # clock.
    "revisions",
    METADATA,
    key("subject", NAME),
    required("revision", BigInteger),
    optional("document", DOCUMENT),
)

COMMIT_MARKS: Final = Table(
    # One slot per transaction in flight: shows, after a lost connection, what was committed (commit_marks.py).
    "commit_marks",
    METADATA,
    key("slot", NAME),
    required("number", BigInteger),
    required("made_at", DateTime(timezone=True)),
    postgresql_with=REWRITTEN,
)
