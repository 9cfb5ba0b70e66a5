"""Workloads and the queue as people see them: with ranks, and with the reason why something is pending."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from domain.identifiers import WorkloadId
from domain.life_cycle import QUEUED
from domain.rank import QueuePosition
from formats.scheduler_file import NO_ELASTIC, NO_TUNING, PlacementSection
from services.database import (
    array_store,
    gang_reservation_store,
    notification_store,
    ownership_store,
    queue_store,
    workload_reader,
)
from services.database.connection import AnyConnection
from services.database.gang_reservation_store import ShownReservation
from services.database.queue_store import QueueLine
from services.database.workload_reader import StoredWorkload, StoredWorkloadFilter
from services.global_scheduler.array_look import array_in_full, array_message, counts_of_first_elements
from services.global_scheduler.consolidations import consolidations
from services.global_scheduler.growth_remarks import growth_remarks
from services.global_scheduler.job_tunings import job_tunings
from services.global_scheduler.region_diagnoses import region_diagnoses
from services.global_scheduler.workload_messages import (
    NOT_RANKED,
    notification_message,
    position_message,
    workload_message,
)
from services.grpc_errors import NotFound
from services.wire.workloads import state_to_proto
from topmast.v1 import global_scheduler_pb2 as messages
from topmast.v1 import workload_pb2

_NOT_RANKED = "not ranked yet: it waits for the next scan pass"
_AFTER_FAILURE = "it waits for its next try after a failure"
_OVER_QUOTA = "over its tenant's quota, so at the lowest priority"
_ITS_TURN = "waits for its turn in the auctions"


class QueueLook:
    """Answers of the reading calls. Every method wants a snapshot, so that states, ranks and counts agree."""

    def __init__(
        self,
        explain: Callable[[WorkloadId], str],
        placement: PlacementSection | None = None,
        tuning: str = NO_TUNING,
        elastic: str = NO_ELASTIC,
    ) -> None:
        """`explain` says why the last scan pass put a workload within or over its quota; empty: it did not see it.
        `placement` None: the defaults. `tuning`: what shares out CPUs and memory, `elastic`: what gives jobs more tasks."""
        self._explain = explain
        self._elastic = elastic
        self._tuning = tuning
        self._placement = placement or PlacementSection()

    async def workload(self, connection: AnyConnection, workload: WorkloadId) -> workload_pb2.Workload | None:
        """The workload with its attempts, or the array; None when there is none of that name."""
        stored = await workload_reader.get(connection, workload)
        if stored is None:
            return await array_in_full(connection, workload)
        rank = NOT_RANKED if stored.position is None else await queue_store.rank_of(connection, stored.position)
        attempts = await workload_reader.load_attempts(connection, workload) if stored.attempt else []
        message = workload_message(stored, rank, self._why_pending(stored), attempts)
        if attempts and attempts[-1].ended_s is None:
            message.attempts[-1].tunings.extend(await job_tunings(connection, stored, attempts[-1], self._tuning))
        packlimit, trial_s = self._placement.fixed_packlimit, self._placement.trial_s
        message.consolidations.extend(await consolidations(connection, stored, packlimit, trial_s))
        if message.specification.HasField("notify"):
            state = await notification_store.state_of(connection, workload)
            if state is not None:
                message.notification.CopyFrom(notification_message(state))
        if not message.ended_s:
            message.remarks.extend(self.remarks(message.specification))
        return message

    async def workload_in_full(self, connection: AnyConnection, workload: WorkloadId) -> workload_pb2.Workload | None:
        """The same; of one that waits also what each region says of it, and who holds what it could use there."""
        message = await self.workload(connection, workload)
        if message is not None and message.queue_position.HasField("diagnosis"):
            stored = await workload_reader.get(connection, workload)
            if stored is not None and stored.diagnosis is not None:
                asked = message.specification
                message.region_diagnoses.extend(await region_diagnoses(connection, stored.diagnosis, workload, asked))
        return message

    def remarks(self, specification: workload_pb2.WorkloadSpecification) -> list[str]:
        """What is asked for and is not done as things are configured."""
        return growth_remarks(specification, self._elastic)

    async def page(
        self, connection: AnyConnection, wanted: StoredWorkloadFilter, page_size: int, page_token: str
    ) -> messages.ListWorkloadsResponse:
        """Raises BadPageToken, and NotFound when elements are wanted of an array that there is not."""
        if wanted.array is not None and not await _is_there(connection, wanted.array, wanted.owners):
            raise NotFound("array", wanted.array, "lists have each array in one row, under its id")
        page = await workload_reader.list_page(connection, wanted, page_size, page_token)
        ranked = [stored.workload for stored in page.workloads if stored.position is not None]
        ranks = await queue_store.ranks_of(connection, ranked) if ranked else {}
        counts = await counts_of_first_elements(connection, page.workloads) if wanted.first_elements else {}
        return messages.ListWorkloadsResponse(
            workloads=[
                array_message(stored, stored.array, counts[stored.array])
                if stored.array is not None and stored.array in counts
                else workload_message(
                    stored,
                    ranks.get(stored.workload, NOT_RANKED),
                    _in_short(stored.position, stored.reason, failed=stored.not_before_s > 0),
                )
                for stored in page.workloads
            ],
            next_page_token=page.next_page_token,
        )

    async def queue(
        self, connection: AnyConnection, tenants: Sequence[str] | None, limit: int
    ) -> messages.GetQueueResponse:
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

    def _why_pending(self, stored: StoredWorkload) -> str:
        if stored.state not in QUEUED:
            return ""
        if stored.held_by is not None or stored.waits_for:
            return stored.reason
        explained = self._explain(stored.workload)
        short = _in_short(stored.position, stored.reason, failed=stored.not_before_s > 0)
        return f"{short} ({explained.rstrip('.')})" if explained else short


async def _is_there(connection: AnyConnection, array: WorkloadId, owners: Sequence[str] | None) -> bool:
    """Whether there is such an array, of one of the owners where these are said."""
    if await array_store.first_element(connection, array) is None:
        return False
    return owners is None or bool(await ownership_store.owned_workloads(connection, [array], owners))


def _in_short(position: QueuePosition | None, reason: str, *, failed: bool = False) -> str:
    if position is None:
        return reason or (_AFTER_FAILURE if failed else _NOT_RANKED)
    return reason or (_ITS_TURN if position.within_quota else _OVER_QUOTA)


def _entry_message(line: QueueLine) -> messages.QueueEntry:
    return messages.QueueEntry(
        workload=line.workload,
        name=line.name,
        tenant=line.tenant,
        state=state_to_proto(line.state),
        position=position_message(line.position, line.rank, _in_short(line.position, line.reason), line.diagnosis),
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
