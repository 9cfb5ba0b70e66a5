"""Databases with all tables and nothing in them, one for each test.

One that a test leaves is emptied, and given to a later test under another name: to copy all files of a database takes a tenth of a
second to half a second, to empty the tables that have rows a hundredth. One whose tables are not as they were is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

_PATIENCE_MS = 10_000

_SHAPE = """
    WITH own AS (SELECT * FROM pg_class WHERE relnamespace = 'public'::regnamespace)
    SELECT md5(string_agg(part, ' ' ORDER BY part COLLATE "C")) FROM (
        SELECT concat_ws(',', relname, relkind, relpersistence, relchecks, reloptions, relhasrules, relrowsecurity,
                         relforcerowsecurity, relacl) FROM own
        UNION ALL
        SELECT concat_ws(',', relname, attname, atttypid, attnotnull, atthasdef, attidentity, attisdropped)
          FROM own JOIN pg_attribute ON attrelid = own.oid WHERE attnum > 0
        UNION ALL
        SELECT concat_ws(',', relname, adnum, adbin) FROM own JOIN pg_attrdef ON adrelid = own.oid
        UNION ALL
        SELECT concat_ws(',', relname, seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle)
          FROM own JOIN pg_sequence ON seqrelid = own.oid
        UNION ALL
        SELECT concat_ws(',', relname, indkey, indisunique, indisvalid, indexprs, indpred) FROM own
          JOIN pg_index ON indexrelid = own.oid
        UNION ALL
        SELECT concat_ws(',', relname, tgname, tgenabled, tgtype) FROM own JOIN pg_trigger ON tgrelid = own.oid
         WHERE NOT tgisinternal
        UNION ALL
        SELECT concat_ws(',', conname, contype, convalidated, conbin) FROM own JOIN pg_constraint ON conrelid = own.oid
        UNION ALL
        SELECT concat_ws(',', relname, 'analyzed') FROM own JOIN pg_statistic ON starelid = own.oid
        UNION ALL
        SELECT concat_ws(',', proname, md5(prosrc)) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
        UNION ALL
        SELECT concat_ws(',', extname, 'extension') FROM pg_extension
        UNION ALL
        SELECT concat_ws(',', nspname, nspacl, 'schema') FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_'
        UNION ALL
        SELECT concat_ws(',', 'setting', s.setconfig) FROM pg_db_role_setting s
         WHERE s.setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    ) AS parts (part)"""
"""What a test may have changed besides rows."""

_WITH_ROWS = """
    SELECT relname FROM pg_class
     WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0 ORDER BY relname"""

_RESTART = """
    SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) FROM pg_sequences
     WHERE schemaname = 'public' AND last_value IS NOT NULL"""


@dataclass
class FreshDatabases:
    """Of one server: `url` says where a database of it is, `create` makes one of this name that is as `template`."""

    url: Callable[[str], str]
    create: Callable[[str], None]
    drop: Callable[[str], None]
    template: str
    uses: int = 50
    """So often one is emptied: each time leaves dead rows in the catalogs, which nothing removes here."""
    _shape: str = ""
    _rows: dict[str, bytes] = field(default_factory=dict)
    """What the tables of the template have, by table: the rows that migrations write."""
    _emptied: list[tuple[str, int]] = field(default_factory=list)
    """Those that nobody uses, and how often each was emptied."""
    _used: dict[str, int] = field(default_factory=dict)
    _count: int = 0

    def take(self) -> str:
        """The name of one that has all tables and nothing in them; never one that was there before."""
        if not self._shape:
            self._look_at_template()
        self._count += 1
        name = f"test_{self._count}"
        if self._emptied:
            spare, uses = self._emptied.pop()
            self._execute("postgres", sql.SQL("ALTER DATABASE {} RENAME TO {}"), spare, name)
        else:
            self.create(name)
            uses = 0
        self._used[name] = uses
        return name

    def give_back(self, name: str) -> None:
        """Ends all connections to it. Whoever goes on with its name finds none."""
        uses, spare = self._used.pop(name) + 1, f"emptied_{name}"
        try:
            if uses < self.uses and self._empty(name, spare):
                self._emptied.append((spare, uses))
                return
        except psycopg.Error:
            # The test has stopped the server, or somebody comes back again and again.
            self.drop(spare)
        self.drop(name)

    def _empty(self, name: str, spare: str) -> bool:
        """False, and nothing is done, when its tables are not as they were."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity WHERE datname = %s", (_PATIENCE_MS, name)
            )
            connection.execute(
                sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(name), sql.Identifier(spare))
            )
        with psycopg.connect(self.url(spare)) as connection:
            if _one(connection, _SHAPE) != self._shape:
                connection.close()
                self.drop(spare)
                return False
            # What is refused otherwise, by the triggers of the audit log for one, is not refused so.
            connection.execute("SET session_replication_role = replica")
            tables = [str(row[0]) for row in connection.execute(_WITH_ROWS).fetchall()]
            if tables:
                listed = sql.SQL(", ").join(map(sql.Identifier, tables))
                connection.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY CASCADE").format(listed))
            connection.execute(_RESTART)
            for table, rows in self._rows.items():
                with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(table))) as copy:
                    copy.write(rows)
        return True

    def _look_at_template(self) -> None:
        with psycopg.connect(self.url(self.template)) as connection:
            self._shape = _one(connection, _SHAPE)
            for (table,) in connection.execute(_WITH_ROWS).fetchall():
                with connection.cursor().copy(sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(table))) as copy:
                    self._rows[str(table)] = b"".join(bytes(part) for part in copy)

    def _execute(self, database: str, statement: sql.SQL, *names: str) -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.format(*map(sql.Identifier, names)))


def _one(connection: psycopg.Connection, statement: str) -> str:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return str(row[0])
