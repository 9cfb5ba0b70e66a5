"""Lists of workloads and the queue as people see them: with ranks, and with the reason why something is pending.

Both want a snapshot, so that states, ranks and counts agree.
"""

from __future__ import annotations

from collections.abc import Sequence

from domain.identifiers import WorkloadId
from services.database import (
    array_store,
    gang_reservation_store,
    ownership_store,
    queue_store,
    workload_reader,
)
from services.database.connection import AnyConnection
from services.database.gang_reservation_store import ShownReservation
from services.database.queue_store import QueueLine
from services.database.workload_reader import StoredWorkloadFilter
from services.global_scheduler.array_look import array_message, counts_of_first_elements
from services.global_scheduler.why_pending import why_in_short
from services.global_scheduler.workload_messages import NOT_RANKED, position_message, workload_message
from services.grpc_errors import NotFound
from services.wire.workloads import state_to_proto
from topmast.v1 import global_scheduler_pb2 as messages


async def page(
    connection: AnyConnection, wanted: StoredWorkloadFilter, page_size: int, page_token: str
) -> messages.ListWorkloadsResponse:
    """Raises BadPageToken, and NotFound when elements are wanted of an array that there is not."""
    if wanted.array is not None and not await _is_there(connection, wanted.array, wanted.owners):
        raise NotFound("array", wanted.array, "lists have each array in one row, under its id")
    page = await workload_reader.list_page(connection, wanted, page_size, page_token)
    ranks = await queue_store.ranks_of(connection, [one.position for one in page.workloads if one.position])
    counts = await counts_of_first_elements(connection, page.workloads) if wanted.first_elements else {}
    return messages.ListWorkloadsResponse(
        workloads=[
            array_message(stored, stored.array, counts[stored.array])
            if stored.array is not None and stored.array in counts
            else workload_message(
                stored,
                ranks.get(stored.workload, NOT_RANKED),
                why_in_short(stored.position, stored.reason, failed=stored.not_before_s > 0),
            )
            for stored in page.workloads
        ],
        next_page_token=page.next_page_token,
    )


async def queue(connection: AnyConnection, tenants: Sequence[str] | None, limit: int) -> messages.GetQueueResponse:
    """Of these tenants; None: of all."""
    lines = await queue_store.list_head(connection, limit, tenants)
    newest = await queue_store.newest_scan_pass(connection)
    return messages.GetQueueResponse(
        entries=[_entry_message(line) for line in lines],
        queued=await queue_store.count_queued(connection, tenants),
        scan_pass=0 if newest is None else newest.number,
        scan_pass_s=0.0 if newest is None else newest.now_s,
        reservations=[
            _reservation_message(one) for one in await gang_reservation_store.list_waiting(connection, tenants)
        ],
    )


async def _is_there(connection: AnyConnection, array: WorkloadId, owners: Sequence[str] | None) -> bool:
    """Whether there is such an array, of one of the owners where these are said."""
    if await array_store.first_element(connection, array) is None:
        return False
    return owners is None or bool(await ownership_store.owned_workloads(connection, [array], owners))


def _entry_message(line: QueueLine) -> messages.QueueEntry:
    return messages.QueueEntry(
        workload=line.workload,
        name=line.name,
        tenant=line.tenant,
        state=state_to_proto(line.state),
        position=position_message(line.position, line.rank, why_in_short(line.position, line.reason), line.diagnosis),
        submitted_s=line.submitted_s,
        gpus=line.gpus,
    )


def _reservation_message(shown: ShownReservation) -> messages.Reservation:
    one = shown.reservation
    return messages.Reservation(
        workload=one.workload,
        name=shown.name,
        tenant=shown.tenant,
        region=one.region,
        clusters=one.clusters,
        machines=one.machines,
        gpus=one.gpus,
        priority=one.standing.priority,
        level=one.standing.level,
        made_s=one.made_s,
        expected_start_s=one.expected_start_s,
        expires_s=one.expires_s,
    )
