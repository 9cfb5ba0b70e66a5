"""Fleets that come in parts."""

from __future__ import annotations

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the tables, empty: clients fill them."""
    op.execute("""
        CREATE TABLE fleet_uploads (
            upload TEXT COLLATE "C" NOT NULL PRIMARY KEY,
            size_bytes BIGINT NOT NULL,
            received_bytes BIGINT NOT NULL,
            touched_s FLOAT NOT NULL,
            tried_s FLOAT
        )""")
    op.execute("""
        CREATE TABLE fleet_upload_parts (
            upload TEXT COLLATE "C" NOT NULL REFERENCES fleet_uploads (upload) ON DELETE CASCADE,
            first_byte BIGINT NOT NULL,
            content BYTEA NOT NULL,
            PRIMARY KEY (upload, first_byte)
        )""")


def downgrade() -> None:
    """Drops them: an upload that is under way begins anew."""
    op.execute("DROP TABLE fleet_upload_parts, fleet_uploads")
