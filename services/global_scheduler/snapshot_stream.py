"""A snapshot of the service as a stream of bytes: those of a packed snapshot file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from domain.clock import Clock
from domain.snapshot import Snapshot
from formats.snapshot_file import packed_snapshot
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.snapshot_reader import load_snapshot
from topmast.v1 import global_scheduler_pb2 as messages

CHUNK_BYTES = 2**20
"""gRPC clients take messages of 4 MiB by default."""


async def snapshot_stream(
    database: Database, clock: Clock, give_up_after_s: float
) -> AsyncGenerator[messages.SnapshotChunk]:
    """Reads everything in one transaction that sees one state of the database, then sends it."""

    async def load(connection: AnyConnection) -> Snapshot:
        return await load_snapshot(connection, clock.now())

    snapshot = await database.run(load, snapshot=True, give_up_after_s=give_up_after_s)
    # Packing a hundred thousand workloads takes a while: calls are answered meanwhile.
    packed = await asyncio.to_thread(packed_snapshot, snapshot)
    for first in range(0, len(packed), CHUNK_BYTES):
        yield messages.SnapshotChunk(content=packed[first : first + CHUNK_BYTES])
