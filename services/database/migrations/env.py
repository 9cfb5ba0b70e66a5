"""What Alembic runs for each command: the connection comes from migrations_runner, which also holds the lock."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from services.database.tables import METADATA

connection = context.config.attributes["connection"]
if not isinstance(connection, Connection):
    raise TypeError("run migrations with services.database.migrations_runner: it hands over a connection")
context.configure(connection=connection, target_metadata=METADATA, transaction_per_migration=False)
context.run_migrations()
