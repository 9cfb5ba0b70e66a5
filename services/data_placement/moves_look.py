"""What people see of moves of tables: those under way, and those that were."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.rows import TupleRow

from data_placement.move_kinds import COPY, HOME, HOME_KEEPING_COPY
from services.database.connection import AnyConnection
from services.grpc_errors import InvalidArgument
from topmast.v1 import data_placement_pb2 as messages

_COLUMNS = """number, data_table, source, target, moves_home, state, size_bytes, copied_bytes, planned_s, deadline_s, ended_s,
              reason, plan, newest_partitions, copy_bytes, keeps_old_copy"""


async def list_moves(
    connection: AnyConnection, state: str, table: str, limit: int, page_token: str
) -> messages.ListTableMovesResponse:
    """A page of them, newest first; empty filters exclude nothing."""
    if page_token and not (len(page_token) <= 18 and page_token.isascii() and page_token.isdigit()):
        raise InvalidArgument.of("page_token", "is none that an earlier page gave")
    cursor = await connection.execute(
        f"""SELECT {_COLUMNS} FROM data_migrations
             WHERE (%(before)s::bigint IS NULL OR number < %(before)s::bigint)
               AND (%(state)s = '' OR state = %(state)s) AND (%(table)s = '' OR data_table = %(table)s)
             ORDER BY number DESC LIMIT %(limit)s""",
        {"before": int(page_token) if page_token else None, "state": state, "table": table, "limit": limit + 1},
    )
    found = _moves(await cursor.fetchall())
    more = str(found[limit - 1].move) if len(found) > limit else ""
    return messages.ListTableMovesResponse(moves=found[:limit], next_page_token=more)


async def moves_under_way(connection: AnyConnection, table: str) -> list[messages.TableMove]:
    """Those of one table that have not ended."""
    cursor = await connection.execute(
        f"SELECT {_COLUMNS} FROM data_migrations WHERE data_table = %s AND ended_s IS NULL ORDER BY number", (table,)
    )
    return _moves(await cursor.fetchall())


def _moves(rows: Sequence[TupleRow]) -> list[messages.TableMove]:
    return [
        messages.TableMove(
            move=row[0],
            table=row[1],
            source=row[2],
            target=row[3],
            kind=_kind(moves_home=row[4], keeps_old_copy=row[15]),
            state=row[5],
            size_bytes=row[6],
            copied_bytes=row[7],
            planned_s=row[8],
            deadline_s=row[9],
            ended_s=row[10],
            reason=row[11],
            plan=row[12] or 0,
            newest_partitions=row[13],
            to_copy_bytes=row[14],
        )
        for row in rows
    ]


def _kind(*, moves_home: bool, keeps_old_copy: bool) -> str:
    if not moves_home:
        return COPY
    return HOME_KEEPING_COPY if keeps_old_copy else HOME
