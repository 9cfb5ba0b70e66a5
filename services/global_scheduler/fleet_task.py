"""Applies a fleet that came in parts, in a process of its own: to check and compare a million machines stops any loop.

`python -m services.global_scheduler.fleet_task` reads a task, one line, from standard input, for the address of a database
may hold a password, and prints one JSON object: what was applied, or why it was refused. When the input ends before that,
whoever asked is gone: it ends at once. The fleet is replaced in one transaction, so that nothing is half-applied then.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from google.rpc import status_pb2
from pydantic import TypeAdapter

from services.database import fleet_upload_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.fleet_upload_store import ContentMistaken
from services.global_scheduler.applying import applied_message, checked_request, replacement
from services.global_scheduler.dry_run import changes_of_fleet
from services.grpc_errors import InvalidArgument, as_refusal, refusal_of, status_of
from services.log_output import configure_logging
from services.runtime.collection import short_collections
from services.tiers.child_process import ask_child, end_with_input
from topmast.v1 import global_scheduler_pb2 as messages


@dataclass(frozen=True, slots=True)
class FleetTask:
    """What to apply. `now` is the time of the service."""

    database_url: str
    upload: str
    now: float


@dataclass(frozen=True, slots=True)
class AppliedUpload:
    """What was applied. The channels are yet to be woken: this process ends too early for that."""

    response: messages.ApplyFleetResponse
    channels: frozenset[str]


class FleetTaskFailed(Exception):
    """The process ended without an answer."""


async def run_fleet_task(task: FleetTask) -> AppliedUpload:
    """What the process answers. Raises CallRefused as ApplyFleet does; cancelled, it ends the process."""
    status, answered = await ask_child("services.global_scheduler.fleet_task", TypeAdapter(FleetTask).dump_json(task))
    if status:
        raise FleetTaskFailed(f"the process that applies fleets ended with {status}")
    answer = json.loads(answered)
    if "refused" in answer:
        raise refusal_of(status_pb2.Status.FromString(bytes.fromhex(answer["refused"])))
    response = messages.ApplyFleetResponse.FromString(bytes.fromhex(answer["applied"]))
    return AppliedUpload(response, frozenset(answer["channels"]))


async def apply_upload(task: FleetTask) -> AppliedUpload:
    """Applies it, on this loop. Raises CallRefused and DatabaseUnavailable."""
    async with Database(task.database_url, connections=2) as database:
        request = await _uploaded_request(database, task.upload)
        described, tenants = await checked_request(request)
        if request.dry_run:
            changes = await changes_of_fleet(database, described, tenants, task.now, give_up_after_s=None)
            return AppliedUpload(applied_message(described.fleet, tenants, changes), frozenset())
        del request
        replace_all = replacement(described, tenants, task.now)

        async def replace_patiently(connection: AnyConnection) -> frozenset[str]:
            # Between two statements a million machines are compared.
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = '600s'")
            return await replace_all(connection)

        channels = await database.run(replace_patiently)
        return AppliedUpload(applied_message(described.fleet, tenants), channels)


async def _uploaded_request(database: Database, upload: str) -> messages.ApplyFleetRequest:
    async def load(connection: AnyConnection) -> bytes:
        return await fleet_upload_store.load_content(connection, upload)

    try:
        return messages.ApplyFleetRequest.FromString(await database.run(load, snapshot=True))
    except ContentMistaken as mistaken:
        raise InvalidArgument.of(
            "upload",
            f"is {upload}, but the SHA-256 of what has come is {mistaken}; it is forgotten, upload the fleet once more",
        ) from mistaken
    except DecodeError as error:
        raise InvalidArgument.of("upload", "is no serialized ApplyFleetRequest") from error


def main() -> None:
    """Does what standard input says, and ends the process."""
    configure_logging()
    task = TypeAdapter(FleetTask).validate_json(sys.stdin.buffer.readline())
    end_with_input()
    try:
        with short_collections():
            applied = asyncio.run(apply_upload(task))
        answer: dict[str, object] = {
            "applied": applied.response.SerializeToString().hex(),
            "channels": sorted(applied.channels),
        }
    except Exception as error:  # noqa: BLE001 - it is said by the process that was called
        answer = {"refused": status_of(as_refusal(error)).SerializeToString().hex()}
    json.dump(answer, sys.stdout)
    sys.stdout.flush()
    # The thread that waits for the end of the input would hold the interpreter up.
    os._exit(0)


if __name__ == "__main__":
    main()
