# Generated from async_client.py by `make client`; never edited.
"""The client for programs that wait: every call blocks until it is answered."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any, Self, Unpack, overload

import grpc

from topmast.actions import Change, change_from_proto, migrate_request, resize_request, retune_request
from topmast.address import resolve_address
from topmast.channel import MAX_ATTEMPTS
from topmast.connection import Connection, MessageStream
from topmast.data_placement import DataPlacement
from topmast.errors import PartlySubmittedError, TopmastError, shift_batch
from topmast.events import Event, event_from_proto
from topmast.fleets import AppliedFleet, Fleet, Tenant, fleet_to_proto, tenants_to_proto
from topmast.loans import ClusterLoans, loans_from_proto
from topmast.log_reader import LogReader
from topmast.logs import LogChunk, LogSelection, nothing_to_read
from topmast.losses import DeclaredLost, declared_from_proto
from topmast.machines import MachinePlan, machine_plans_from_proto
from topmast.reconnection import Patience
from topmast.requests import LARGEST_PAGE, Submittable, WorkloadFilter, list_request, submit_batches, submit_request
from topmast.specifications import SingleJob, single_job
from topmast.status import Status, status_from_proto
from topmast.v1 import (
    event_pb2,
    fleet_pb2,
    global_scheduler_pb2,
    global_scheduler_pb2_grpc,
    machine_assignment_pb2,
    workload_pb2,
)
from topmast.virtual_clusters import VirtualClusters, virtual_clusters_from_proto
from topmast.workloads import (
    Queue,
    Submission,
    Workload,
    WorkloadPage,
    WorkloadState,
    page_from_proto,
    queue_from_proto,
    state_from_proto,
    workload_from_proto,
)


class Client:
    """Talks to Topmast. Threads may share it; close it, or use it in a `with` statement.

    `address` is host:port of the global scheduler; without it TOPMAST_ADDRESS counts, then what `topmast up` wrote
    down, then 127.0.0.1:7460. A call is tried `attempts` times (1 to 5) while the server is unavailable, within
    `timeout_s`; a stream that breaks off is taken up again where it was, for up to `patience_s` without success.

    Every method raises TopmastError, or rather the subclass that says what went wrong (topmast.errors).
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        timeout_s: float = 30.0,
        attempts: int = MAX_ATTEMPTS,
        patience_s: float = 60.0,
    ) -> None:
        self.address = resolve_address(address)
        self._peer = f"Topmast at {self.address}"
        self._connection = Connection(
            credentials, Patience(timeout_s=timeout_s, attempts=attempts, patience_s=patience_s)
        )
        # Made when it is needed: building a client opens no connection.
        self._stub: global_scheduler_pb2_grpc.GlobalSchedulerStub | None = None

    @property
    def _scheduler(self) -> global_scheduler_pb2_grpc.GlobalSchedulerStub:
        self._connection.refuse_when_closed()
        if self._stub is None:
            self._stub = global_scheduler_pb2_grpc.GlobalSchedulerStub(self._connection.channel(self.address))
        return self._stub

    @property
    def data(self) -> DataPlacement:
        """Tables of the data warehouse: the catalog, plans of where they should be, moves."""
        return DataPlacement(self._connection, self.address, self._peer)

    def close(self) -> None:
        """Ends all calls that are under way."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------ submit

    @overload
    def submit(self, specification: Submittable, /, *, idempotency_key: str | None = None) -> Submission: ...

    @overload
    def submit(self, *, idempotency_key: str | None = None, **job: Unpack[SingleJob]) -> Submission: ...

    def submit(  # type: ignore[misc]  # mypy does not fit the keywords of a TypedDict into **Any
        self,
        specification: Submittable | None = None,
        /,
        *,
        idempotency_key: str | None = None,
        **job: Any,
    ) -> Submission:
        """Submits a workload: a specification, or the keywords of a workload with one job.

        `client.submit(tenant="vision", command=["python", "train.py"], gpus=8, tasks=2, gpu_model="A100")`

        When it returns, the workload is stored. Without an idempotency key each call makes a new workload, however
        often the call has to be tried; with one, the same key and body always mean the same workload.
        """
        request = submit_request(single_job(**job) if specification is None else specification, idempotency_key)
        response = self._connection.call(self._scheduler.SubmitWorkload, request, self._peer)
        return Submission(response.workload, response.existed)

    def submit_many(
        self, specifications: Iterable[Submittable], *, idempotency_keys: Sequence[str] | None = None
    ) -> tuple[Submission, ...]:
        """Submits workloads in batches of up to 1,000; each batch is stored as a whole or not at all.

        When a batch is refused after others were accepted, PartlySubmittedError says which workloads exist.
        """
        submitted: tuple[Submission, ...] = ()
        for batch in submit_batches(specifications, idempotency_keys):
            try:
                response = self._connection.call(self._scheduler.SubmitWorkloads, batch, self._peer)
            except TopmastError as error:
                if not submitted:
                    raise
                raise PartlySubmittedError(shift_batch(error, len(submitted)), submitted) from error
            submitted += tuple(Submission(one.workload, one.existed) for one in response.responses)
        return submitted

    # ------------------------------------------------------------ look

    def get(self, workload: str) -> Workload:
        """The workload with all its attempts."""
        request = global_scheduler_pb2.GetWorkloadRequest(workload=workload)
        return workload_from_proto(self._connection.call(self._scheduler.GetWorkload, request, self._peer))

    def list(self, *, limit: int | None = None, **wanted: Unpack[WorkloadFilter]) -> Iterator[Workload]:
        """Workloads, newest first, page by page as they are asked for; without their attempts."""
        if limit is not None and limit < 0:
            raise ValueError(f"limit is {limit}; it must not be negative (None: all)")
        page_size = LARGEST_PAGE if limit is None else min(limit, LARGEST_PAGE)
        listed = 0
        page_token = ""
        while limit is None or listed < limit:
            page = self.list_page(page_size=page_size, page_token=page_token, **wanted)
            yield from page.workloads if limit is None else page.workloads[: limit - listed]
            listed += len(page.workloads)
            page_token = page.next_page_token
            if not page_token:
                return

    def list_page(
        self, *, page_size: int = 100, page_token: str = "", **wanted: Unpack[WorkloadFilter]
    ) -> WorkloadPage:
        """One page of workloads, newest first, and the token of the next one."""
        request = list_request(page_size, page_token, **wanted)
        return page_from_proto(self._connection.call(self._scheduler.ListWorkloads, request, self._peer))

    def watch(self, workload: str) -> Generator[Workload, None, None]:
        """The workload now and after each change, until it has ended."""
        request = global_scheduler_pb2.WatchWorkloadRequest(workload=workload)

        def begin() -> MessageStream[workload_pb2.Workload]:
            return self._scheduler.WatchWorkload(request)

        latest = None
        with closing(self._connection.stream(begin, self._peer, endless=True)) as messages:
            for message in messages:
                if message == latest:
                    # The stream was taken up again, and nothing had changed meanwhile.
                    continue
                latest = message
                now = workload_from_proto(message)
                yield now
                if now.state.ended:
                    return

    def wait(self, workload: str) -> Workload:
        """Waits until the workload has ended; returns it."""
        with closing(self.watch(workload)) as changes:
            return next(now for now in changes if now.state.ended)

    def events(
        self,
        *,
        after_sequence: int = 0,
        follow: bool = False,
        workload: str = "",
        tenant: str = "",
        events: Sequence[str] = (),
    ) -> Generator[Event, None, None]:
        """The event log after a place in it; with `follow` it goes on when the end of the log is reached.

        None is left out and none comes twice, also when the server goes away in between.
        """
        request = global_scheduler_pb2.WatchEventsRequest(
            after_sequence=after_sequence, follow=follow, workload=workload, tenant=tenant, events=events
        )

        def begin() -> MessageStream[event_pb2.Event]:
            return self._scheduler.WatchEvents(request)

        with closing(self._connection.stream(begin, self._peer, endless=follow)) as messages:
            for message in messages:
                # Where the stream is taken up again when it breaks off.
                request.after_sequence = message.sequence
                yield event_from_proto(message)

    def snapshot(self) -> bytes:
        """Everything that is decided on, at one moment: the bytes of a packed snapshot file.

        `topmast simulate --snapshot` goes on from it.
        """
        request = global_scheduler_pb2.SaveSnapshotRequest()
        content = bytearray()

        def begin() -> MessageStream[global_scheduler_pb2.SnapshotChunk]:
            # A stream that broke off is of another moment than the one that follows.
            content.clear()
            return self._scheduler.SaveSnapshot(request)

        with closing(self._connection.stream(begin, self._peer, endless=False)) as chunks:
            for chunk in chunks:
                content += chunk.content
        return bytes(content)

    def queue(self, *, limit: int = 50, tenant: str = "") -> Queue:
        """The head of the queue, and how many are in it."""
        request = global_scheduler_pb2.GetQueueRequest(limit=limit, tenant=tenant)
        return queue_from_proto(self._connection.call(self._scheduler.GetQueue, request, self._peer))

    def status(self) -> Status:
        """Tiers, regions and workloads in one look."""
        request = global_scheduler_pb2.GetStatusRequest()
        return status_from_proto(self._connection.call(self._scheduler.GetStatus, request, self._peer))

    def virtual_clusters(self, *, tenant: str = "", cluster: str = "") -> VirtualClusters:
        """Who owns and uses what in the clusters that are divided into cells; "": of all tenants, in all clusters."""
        request = global_scheduler_pb2.GetVirtualClustersRequest(tenant=tenant, cluster=cluster)
        answer = self._connection.call(self._scheduler.GetVirtualClusters, request, self._peer)
        return virtual_clusters_from_proto(answer)

    def loans(self, *, cluster: str = "") -> tuple[ClusterLoans, ...]:
        """The machines that inference clusters lend to training; "": of all such clusters."""
        request = global_scheduler_pb2.GetLoansRequest(cluster=cluster)
        return loans_from_proto(self._connection.call(self._scheduler.GetLoans, request, self._peer))

    def plan_machines(
        self, requests: str = "", *, region: str = "", time_limit_s: float | None = None
    ) -> tuple[MachinePlan, ...]:
        """Which machines would change their cluster by these requests (the text of a requests.yaml; "": those applied), region by
        region; "": of all. Changes nothing."""
        request = machine_assignment_pb2.PlanMachinesRequest(
            requests=requests, region=region, time_limit_s=time_limit_s
        )
        answer = self._connection.call(self._scheduler.PlanMachines, request, self._peer)
        return machine_plans_from_proto(answer)

    def explain_machine(self, name: str) -> tuple[str, ...]:
        """Why a machine is in its cluster, or what a cluster asks for and has: in sentences."""
        request = machine_assignment_pb2.ExplainMachineRequest(name=name)
        answer = self._connection.call(self._scheduler.ExplainMachine, request, self._peer)
        return tuple(answer.sentences)

    def logs(
        self,
        workload: str,
        *,
        attempt: int | None = None,
        job: str = "",
        task: int | None = None,
        follow: bool = False,
        tail_lines: int = 0,
    ) -> Generator[LogChunk, None, None]:
        """What the tasks printed, of one attempt (without a number: the newest).

        With `follow` it goes on until the workload has ended, from attempt to attempt, wherever they run. Raises
        NotFoundError when there is no such attempt.
        """
        selection = LogSelection(workload, attempt, job, task, follow, tail_lines)
        reader = LogReader(self._connection, self.status)
        read_last = 0
        with closing(self.watch(workload)) as changes:
            for now in changes:
                chosen = selection.choose_attempt(now, after=read_last)
                if chosen is not None:
                    with closing(reader.read(selection, chosen)) as chunks:
                        yield from chunks
                    read_last = chosen.attempt
                elif not read_last and not selection.goes_on_after(now):
                    raise nothing_to_read(selection, now)
                if not selection.goes_on_after(now):
                    return

    # ------------------------------------------------------------ change

    def cancel(self, workload: str, reason: str = "") -> WorkloadState:
        """Cancels a workload: at once when it is queued, else it is stopped. Returns its state now."""
        request = global_scheduler_pb2.CancelWorkloadRequest(workload=workload, reason=reason)
        response = self._connection.call(self._scheduler.CancelWorkload, request, self._peer)
        return state_from_proto(response.state)

    def resize(self, workload: str, job: str, tasks: int) -> Change:
        """Gives a job of a running workload so many tasks, within its bounds."""
        request = resize_request(workload, job, tasks)
        return change_from_proto(self._connection.call(self._scheduler.ResizeWorkload, request, self._peer))

    def retune(self, workload: str, job: str, *, cpus: float | None = None, memory_gib: float | None = None) -> Change:
        """Gives each task of a job of a running workload so many CPUs and so much memory; None: as it has now."""
        request = retune_request(workload, job, cpus, memory_gib)
        return change_from_proto(self._connection.call(self._scheduler.RetuneWorkload, request, self._peer))

    def migrate(self, workload: str, to: str = "") -> Change:
        """Lets a running workload go on in another region or cluster, or (without `to`) elsewhere in its region.

        It saves its work and stops, and its next attempt starts in the place that is kept for it. Asked again while it
        is on its way it is refused.
        """
        request = migrate_request(workload, to)
        return change_from_proto(self._connection.call(self._scheduler.MigrateWorkload, request, self._peer))

    def declare_lost(self, region: str, cluster: str = "", *, yes: bool = False) -> DeclaredLost:
        """Says that a cluster, or (without one) all of a region, is lost: what ran there runs elsewhere, at once.

        What holds its lease is refused, unless `yes`: then what runs there is stopped.
        """
        request = global_scheduler_pb2.DeclareLostRequest(region=region, cluster=cluster, yes=yes)
        return declared_from_proto(self._connection.call(self._scheduler.DeclareLost, request, self._peer))

    def apply_machine_requests(self, requests: str, *, region: str = "") -> tuple[str, ...]:
        """Replaces what the clusters of the regions ask for of which one is named (the text of a requests.yaml), or of that region
        alone; their schedulers move machines by it. Returns these regions."""
        request = machine_assignment_pb2.ApplyMachineRequestsRequest(requests=requests, region=region)
        answer = self._connection.call(self._scheduler.ApplyMachineRequests, request, self._peer)
        return tuple(answer.regions)

    def apply_fleet(
        self, fleet: Fleet | fleet_pb2.Fleet, tenants: Iterable[Tenant | fleet_pb2.Tenant] | None = None
    ) -> AppliedFleet:
        """Replaces the fleet, and all tenants if some are given: both or none.

        Refused while something runs on a machine that would disappear, or where the tenants' virtual clusters are not there.
        """
        message = fleet_to_proto(fleet) if isinstance(fleet, Fleet) else fleet
        request = global_scheduler_pb2.ApplyFleetRequest(fleet=message)
        if tenants is not None:
            request.tenants.SetInParent()
            request.tenants.tenants.extend(tenants_to_proto(tenants))
        applied = self._connection.call(self._scheduler.ApplyFleet, request, self._peer)
        return AppliedFleet(applied.regions, applied.clusters, applied.machines, applied.gpus)

    def apply_tenants(self, tenants: Iterable[Tenant | fleet_pb2.Tenant]) -> int:
        """Replaces all tenants; refused while one that would disappear has workloads, or where the fleet has not their
        virtual clusters. Returns how many there are."""
        request = global_scheduler_pb2.ApplyTenantsRequest(tenants=tenants_to_proto(tenants))
        response = self._connection.call(self._scheduler.ApplyTenants, request, self._peer)
        return response.tenants
