"""What was done with the right to administer is written down for good."""

from __future__ import annotations

from alembic import op

revision = "0056"
down_revision = "0055"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Rows are added and read; the database itself refuses to change, delete or empty them."""
    op.execute("""
        CREATE TABLE audit_log (
            record BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
            actor TEXT COLLATE "C" NOT NULL,
            actor_role TEXT COLLATE "C" NOT NULL,
            actor_kind TEXT COLLATE "C" NOT NULL,
            actor_credential TEXT COLLATE "C" NOT NULL,
            action TEXT COLLATE "C" NOT NULL,
            subjects TEXT[] NOT NULL,
            outcome TEXT COLLATE "C" NOT NULL,
            reason TEXT NOT NULL DEFAULT '',
            before JSONB,
            after JSONB
        )""")
    op.execute("""
        CREATE FUNCTION refuse_to_change_the_audit_log() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'the audit log can only be added to: % is refused', TG_OP;
        END $$""")
    op.execute("""
        CREATE TRIGGER audit_log_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
            FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_the_audit_log()""")


def downgrade() -> None:
    """Programs of before write nothing down."""
    op.execute("DROP TABLE audit_log")
    op.execute("DROP FUNCTION refuse_to_change_the_audit_log")
