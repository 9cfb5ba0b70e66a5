# Generated from async_client.py by `make client`; never edited.
"""The client for programs that wait: every call blocks until it is answered."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any, BinaryIO, Self, Unpack, overload

import grpc

from topmast import user_requests
from topmast.actions import Change, change_from_proto, migrate_request, resize_request, retune_request
from topmast.address import resolve_address
from topmast.channel import MAX_ATTEMPTS
from topmast.connection import Connection, MessageStream
from topmast.data_placement import DataPlacement
from topmast.dry_run import CheckedWorkload, as_dry_run, checked_from_proto
from topmast.errors import PartlySubmittedError, TopmastError, shift_batch
from topmast.events import Event, event_from_proto
from topmast.fleet_operations import FleetOperations
from topmast.label_conditions import label_conditions
from topmast.loans import ClusterLoans, loans_from_proto
from topmast.log_reader import LogReader
from topmast.log_story import LogStory
from topmast.logs import LogChunk, LogSelection, nothing_to_read
from topmast.messages import message_of, strings, whole_number
from topmast.package_upload import PackageUpload
from topmast.reconnection import Patience
from topmast.requests import (
    LARGEST_PAGE,
    Submittable,
    WorkloadFilter,
    list_request,
    submit_batches,
    submit_request,
    with_package,
    with_package_each,
)
from topmast.sessions import CommandOutput, Execution, as_input, session_command, session_place
from topmast.specifications import SingleJob, single_job
from topmast.status import Status, status_from_proto
from topmast.task_sessions import TaskSessions, parts
from topmast.token import resolve_token
from topmast.transport import FileName, tls_credentials
from topmast.user_requests import Several, WorkloadChange, WorkloadsNow
from topmast.v1 import (
    event_pb2,
    global_scheduler_pb2,
    global_scheduler_pb2_grpc,
    workload_pb2,
)
from topmast.virtual_clusters import VirtualClusters, virtual_clusters_from_proto
from topmast.workload_graph import WorkloadGraph, graph_from_proto
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


class Client(FleetOperations):
    """Talks to Topmast. Threads may share it; close it, or use it in a `with` statement.

    `address` is host:port of the global scheduler; without it TOPMAST_ADDRESS counts, then what `topmast up` wrote down, then (unless TOPMAST_HOME is set) 127.0.0.1:7460; making a client raises UnreachableError where the home has no
    service. `token` says who calls; without it TOPMAST_TOKEN counts, then the file that TOPMAST_TOKEN_FILE names, then
    what `topmast up` wrote for its user, where the address is that of the home. Files for TLS: `certificate_authority` (else TOPMAST_TLS_CA), `certificate`, `key` (TOPMAST_TLS_CERTIFICATE, TOPMAST_TLS_KEY).
    A call is tried `attempts` times (1 to 5) while the server is unavailable, within `timeout_s`; a stream that breaks off is taken up again where it was, for up to `patience_s` without success.

    Every method raises TopmastError, or rather the subclass that says what went wrong (topmast.errors); and TypeError, as any Python function, for a keyword that it does not have or one that is missing.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        token: str | None = None,
        certificate_authority: FileName | None = None,
        certificate: FileName | None = None,
        key: FileName | None = None,
        timeout_s: float = 30.0,
        attempts: int = MAX_ATTEMPTS,
        patience_s: float = 60.0,
    ) -> None:
        self.address = resolve_address(address)
        self._peer = f"Topmast at {self.address}"
        tls = tls_credentials(credentials, certificate_authority, certificate, key)
        patience = Patience(timeout_s=timeout_s, attempts=attempts, patience_s=patience_s)
        self._connection = Connection(tls, patience, resolve_token(token, self.address))
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
    def submit(
        self,
        specification: Submittable,
        /,
        *,
        idempotency_key: str | None = None,
        working_directory: str | os.PathLike[str] | None = None,
    ) -> Submission: ...

    @overload
    def submit(
        self,
        *,
        idempotency_key: str | None = None,
        working_directory: str | os.PathLike[str] | None = None,
        **job: Unpack[SingleJob],
    ) -> Submission: ...

    def submit(  # type: ignore[misc]  # mypy does not fit the keywords of a TypedDict into **Any
        self,
        specification: Submittable | None = None,
        /,
        *,
        idempotency_key: str | None = None,
        working_directory: str | os.PathLike[str] | None = None,
        **job: Any,
    ) -> Submission:
        """Submits a workload: a specification, or the keywords of a workload with one job.

        `client.submit(tenant="vision", command=["python", "train.py"], gpus=8, tasks=2, gpu_model="A100")`

        When it returns, the workload is stored. Without an idempotency key each call makes a new workload, however
        often the call has to be tried; with one, the same key and body always mean the same workload.

        Each attempt starts with what is in the folder `working_directory` now, wherever it runs (the files are a part of the
        body); without one it starts in an empty folder.
        """
        if specification is not None and job:
            raise TypeError(f"submit() takes a specification or the keywords of a job, not both: {', '.join(job)}")
        wanted = single_job(**job) if specification is None else specification
        if working_directory is not None:
            wanted = with_package(wanted, self.upload_working_directory(working_directory))
        request = submit_request(wanted, idempotency_key)
        response = self._connection.call(self._scheduler.SubmitWorkload, request, self._peer)
        return Submission(response.workload, response.existed, tuple(response.remarks))

    def submit_many(
        self,
        specifications: Iterable[Submittable],
        *,
        idempotency_keys: Sequence[str] | None = None,
        working_directory: str | os.PathLike[str] | None = None,
    ) -> tuple[Submission, ...]:
        """Submits workloads in batches of up to 1,000; each batch is stored as a whole or not at all.

        A list is looked through before anything of it is sent; `requests[i]` in `violations` is its i-th workload, from 0.
        When a batch is refused after others were accepted, PartlySubmittedError says which workloads exist.
        All of them have the one `working_directory`, if it is given; see `submit`.
        """
        if working_directory is not None:
            package = self.upload_working_directory(working_directory)
            specifications = with_package_each(specifications, package)
        submitted: tuple[Submission, ...] = ()
        try:
            for batch in submit_batches(specifications, idempotency_keys):
                submitted += self._submit_batch(batch, len(submitted))
        except TopmastError as error:
            if not submitted:
                raise
            raise PartlySubmittedError(error, submitted) from error
        return submitted

    def check(self, specification: Submittable, *, idempotency_key: str | None = None) -> CheckedWorkload:
        """As `submit`, with the same errors, but nothing is stored: says which regions could host the workload."""
        request = submit_request(specification, idempotency_key)
        request.dry_run = True
        return checked_from_proto(self._connection.call(self._scheduler.SubmitWorkload, request, self._peer))

    def check_many(
        self, specifications: Iterable[Submittable], *, idempotency_keys: Sequence[str] | None = None
    ) -> tuple[CheckedWorkload, ...]:
        """As `submit_many`, with the same errors, but nothing is stored."""
        checked: tuple[CheckedWorkload, ...] = ()
        for batch in submit_batches(specifications, idempotency_keys):
            try:
                response = self._connection.call(self._scheduler.SubmitWorkloads, as_dry_run(batch), self._peer)
            except TopmastError as error:
                raise shift_batch(error, len(checked)) from error
            checked += tuple(map(checked_from_proto, response.responses))
        return checked

    def _submit_batch(self, batch: global_scheduler_pb2.SubmitWorkloadsRequest, first: int) -> tuple[Submission, ...]:
        try:
            response = self._connection.call(self._scheduler.SubmitWorkloads, batch, self._peer)
        except TopmastError as error:
            raise shift_batch(error, first) from error
        return tuple(Submission(one.workload, one.existed, tuple(one.remarks)) for one in response.responses)

    def upload_working_directory(self, folder: str | os.PathLike[str]) -> str:
        """Packs a folder, and stores it unless it is stored already: for the `package` of workloads.

        It is without .git, and without what its .gitignore and .topmastignore name. Raises WorkingDirectoryError when it is too
        large for the service, or has something in it that cannot be packed.
        """
        return PackageUpload(self._connection, self.address, self._peer).upload(folder)

    # ------------------------------------------------------------ look

    def get(self, workload: str) -> Workload:
        """The workload with all its attempts."""
        request = message_of(global_scheduler_pb2.GetWorkloadRequest, workload=workload)
        return workload_from_proto(self._connection.call(self._scheduler.GetWorkload, request, self._peer))

    def graph(self, workload: str) -> WorkloadGraph:
        """The workloads that wait, or waited, for this one, and those for which it does, however far."""
        request = message_of(global_scheduler_pb2.GetWorkloadGraphRequest, workload=workload)
        return graph_from_proto(self._connection.call(self._scheduler.GetWorkloadGraph, request, self._peer))

    def list(self, *, limit: int | None = None, **wanted: Unpack[WorkloadFilter]) -> Iterator[Workload]:
        """Workloads, newest first, page by page as they are asked for; without their attempts."""
        limit = whole_number("limit", limit, least=0)
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
        request = message_of(global_scheduler_pb2.WatchWorkloadRequest, workload=workload)

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
        labels: Sequence[str] = (),
    ) -> Generator[Event, None, None]:
        """The event log after a place in it; with `follow` it goes on when the end of the log is reached.

        None is left out and none comes twice, also when the server goes away in between. `labels` as for `list`.
        """
        request = message_of(
            global_scheduler_pb2.WatchEventsRequest,
            after_sequence=after_sequence,
            follow=follow,
            workload=workload,
            tenant=tenant,
            events=strings("events", events),
            labels=label_conditions(labels),
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
        request = message_of(global_scheduler_pb2.GetQueueRequest, limit=limit, tenant=tenant)
        return queue_from_proto(self._connection.call(self._scheduler.GetQueue, request, self._peer))

    def status(self) -> Status:
        """Tiers, regions and workloads in one look."""
        request = global_scheduler_pb2.GetStatusRequest()
        return status_from_proto(self._connection.call(self._scheduler.GetStatus, request, self._peer))

    def virtual_clusters(self, *, tenant: str = "", cluster: str = "") -> VirtualClusters:
        """Who owns and uses what in the clusters that are divided into cells; "": of all tenants, in all clusters."""
        request = message_of(global_scheduler_pb2.GetVirtualClustersRequest, tenant=tenant, cluster=cluster)
        answer = self._connection.call(self._scheduler.GetVirtualClusters, request, self._peer)
        return virtual_clusters_from_proto(answer)

    def loans(self, *, cluster: str = "") -> tuple[ClusterLoans, ...]:
        """The machines that inference clusters lend to training; "": of all such clusters."""
        request = message_of(global_scheduler_pb2.GetLoansRequest, cluster=cluster)
        return loans_from_proto(self._connection.call(self._scheduler.GetLoans, request, self._peer))

    def logs(
        self,
        workload: str,
        *,
        attempt: int | None = None,
        job: str = "",
        task: int | None = None,
        follow: bool = False,
        tail_lines: int = 0,
        told: Callable[[str], None] | None = None,
    ) -> Generator[LogChunk, None, None]:
        """What the tasks printed, of one attempt (without a number: the newest).

        With `follow` it waits for the first line, and goes on until the workload has ended, from attempt to attempt, wherever
        they run. `told` hears in sentences what explains a silence: that nothing is there yet and why, that an attempt was
        preempted and by whom, that the next one runs. Raises NotFoundError when there is no such attempt, job or task;
        NotPlacedYetError, without `follow`, while there is no attempt yet.
        """
        selection = LogSelection(workload, attempt, job, task, follow, tail_lines).checked()
        reader = LogReader(self._connection, self.status)
        story = LogStory(selection, told)
        read_last = 0
        with closing(self.watch(workload)) as changes:
            for now in changes:
                selection = selection.of(now)
                selection.refuse_unknown_tasks(now)
                story.look(now)
                chosen = selection.choose_attempt(now, after=read_last)
                if chosen is not None:
                    story.begin(chosen)
                    with closing(reader.read(selection, chosen)) as chunks:
                        for chunk in chunks:
                            story.printed = True
                            yield chunk
                    read_last = chosen.attempt
                    story.end(now, chosen)
                elif not read_last and not selection.goes_on_after(now):
                    raise nothing_to_read(selection, now)
                if not selection.goes_on_after(now):
                    return

    # ------------------------------------------------------------ beside a task

    @property
    def sessions(self) -> TaskSessions:
        """What `execute` is made of: input and output as they come, terminals, connections to ports."""
        return TaskSessions(self._connection, self.status)

    def execute(
        self,
        workload: str,
        command: Sequence[str],
        *,
        job: str = "",
        task: int = 0,
        stdin: bytes | BinaryIO = b"",
        stdout: BinaryIO | None = None,
        stderr: BinaryIO | None = None,
    ) -> Execution:
        """Runs a command beside a task (of the first job, unless one is named), on its machine and in its environment, to its
        end. It ends with the attempt, and when this call is left.

        `stdin` is what it reads, bytes or a file; what it prints goes to the files, where there are some, else it is kept.
        Raises PreconditionError where the task does not run, or ends before the command.
        """
        asked, read = session_command(command), as_input(stdin)
        place = session_place(self.get(workload), job, task)
        output = CommandOutput(stdout, stderr)
        session = self.sessions.open(place, place.opening(asked), parts(read))
        with closing(session) as responses:
            for response in responses:
                output.take(response)
        return output.result()

    # ------------------------------------------------------------ change

    def cancel(self, workload: str, reason: str = "") -> WorkloadState:
        """Cancels a workload: at once when it is queued, else it is stopped. Returns its state now."""
        request = message_of(global_scheduler_pb2.CancelWorkloadRequest, workload=workload, reason=reason)
        response = self._connection.call(self._scheduler.CancelWorkload, request, self._peer)
        return state_from_proto(response.state)

    def cancel_many(self, workloads: Several, reason: str = "", *, passes_over_ended: bool = False) -> WorkloadsNow:
        """Cancels up to 1,000 workloads: all of them or, unless those that have ended are passed over, none where one has."""
        request = user_requests.cancel_request(workloads, reason, passes_over_ended=passes_over_ended)
        return user_requests.told(self._connection.call(self._scheduler.CancelWorkloads, request, self._peer))

    def hold(self, workloads: Several, *, reason: str = "", requeue: bool = False, asked_by: str = "") -> WorkloadsNow:
        """Queued workloads are not ranked until they are released: all of these, or none. What runs is refused, or stopped first."""
        request = user_requests.hold_request(workloads, reason, asked_by, requeue=requeue)
        return user_requests.told(self._connection.call(self._scheduler.HoldWorkloads, request, self._peer))

    def release(self, workloads: Several, *, asked_by: str = "") -> WorkloadsNow:
        """Workloads that are held are in the queue again: all of these, or none."""
        request = user_requests.release_request(workloads, asked_by)
        return user_requests.told(self._connection.call(self._scheduler.ReleaseWorkloads, request, self._peer))

    def requeue(self, workloads: Several, *, idempotency_key: str | None = None, asked_by: str = "") -> WorkloadsNow:
        """What runs is stopped with its grace, and returns to the queue; what has ended is submitted anew, under a new name."""
        request = user_requests.requeue_request(workloads, asked_by, idempotency_key)
        return user_requests.told(self._connection.call(self._scheduler.RequeueWorkloads, request, self._peer))

    def change(self, workloads: Several, *, asked_by: str = "", **wanted: Unpack[WorkloadChange]) -> WorkloadsNow:
        """Changes what queued workloads ask for; of what runs only `labels` and `max_time_s`: all of these, or none."""
        request = user_requests.change_request(workloads, asked_by, **wanted)
        return user_requests.told(self._connection.call(self._scheduler.ChangeWorkloads, request, self._peer))

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
