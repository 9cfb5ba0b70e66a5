"""What the tasks of a workload print, gathered from the clusters that run them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from topmast.errors import LogBrokeOffError, NotFoundError, NotPlacedYetError
from topmast.messages import message_of, refused
from topmast.v1 import cluster_manager_pb2
from topmast.workloads import Attempt, Workload


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Some bytes that one task printed; not always whole lines."""

    cluster: str
    attempt: int
    job: str
    task: int
    chunk: bytes


@dataclass(frozen=True, slots=True)
class LogSelection:
    """Which output: of one attempt (None: the newest), of one job ("": all), of one task (None: all).

    With `tail_lines` only the last so many lines of each task; 0: all.
    """

    workload: str
    attempt: int | None = None
    job: str = ""
    task: int | None = None
    follow: bool = False
    tail_lines: int = 0

    def request(self, attempt: int) -> cluster_manager_pb2.ReadLogsRequest:
        return message_of(
            cluster_manager_pb2.ReadLogsRequest,
            workload=self.workload,
            attempt=attempt,
            job=self.job,
            task=self.task,
            follow=self.follow,
            tail_lines=self.tail_lines,
        )

    def checked(self) -> LogSelection:
        """The same; raises InvalidArgumentError for what cannot be asked for."""
        self.request(1 if self.attempt is None else self.attempt)
        return self

    def of(self, workload: Workload) -> LogSelection:
        """The same by the workload's own name: ARRAY[7] stands for one. Raises InvalidArgumentError for an array as a whole."""
        if workload.elements is not None:
            raise refused(
                "workload", f"{workload.workload} is an array; name one element of it: {workload.workload}[INDEX]"
            )
        return replace(self, workload=workload.workload)

    def refuse_unknown_tasks(self, workload: Workload) -> None:
        """Raises NotFoundError when the workload has no such job, or no such task in it."""
        jobs = workload.specification.jobs
        chosen = [job for job in jobs if self.job in ("", job.name)]
        if not chosen:
            named = ", ".join(job.name for job in jobs)
            raise NotFoundError(f"workload {workload.workload} has no job {self.job}; its jobs: {named}")
        most = max(max(job.tasks, job.max_tasks) for job in chosen)
        if self.task is not None and not 0 <= self.task < most:
            of_job = f"job {self.job} of workload {workload.workload}" if self.job else f"workload {workload.workload}"
            has = "task 0 only" if most == 1 else f"tasks 0 to {most - 1}"
            raise NotFoundError(f"{of_job} has no task {self.task}; it has {has}")

    def choose_attempt(self, workload: Workload, after: int) -> Attempt | None:
        """The attempt to read: the one asked for, else the newest one after `after` that has been placed."""
        placed = [attempt for attempt in workload.attempts if attempt.placements]
        if self.attempt is not None:
            return next((attempt for attempt in placed if attempt.attempt == self.attempt), None)
        return max(
            (attempt for attempt in placed if attempt.attempt > after),
            key=lambda attempt: attempt.attempt,
            default=None,
        )

    def goes_on_after(self, workload: Workload) -> bool:
        """True when another attempt may come that belongs to what was asked for."""
        return self.follow and self.attempt is None and not workload.state.ended


def nothing_to_read(selection: LogSelection, workload: Workload) -> NotFoundError:
    """The error when there is no such attempt."""
    if selection.attempt is not None:
        known = ", ".join(str(attempt.attempt) for attempt in workload.attempts) or "none yet"
        return NotFoundError(
            f"workload {workload.workload} has no placed attempt {selection.attempt}; its attempts: {known}"
        )
    state = state_words(workload)
    if workload.state.ended:
        return NotFoundError(f"workload {workload.workload} was never placed, it is {state}")
    return NotPlacedYetError(f"workload {workload.workload} has not been placed yet, it is {state}")


def state_words(workload: Workload) -> str:
    """WAITING: no_room in east; CANCELLED: wrong data; PENDING, it is tried again after a pause."""
    position = workload.queue_position
    if position is not None and position.next_try_s is not None:
        return f"{workload.state}, it is tried again after a pause"
    why = workload.reason
    if position is not None and position.diagnosis is not None:
        found = position.diagnosis
        why = f"{found.reason} in {found.region}" if found.region else found.reason
    return f"{workload.state}: {why}" if why else workload.state.value


class LogCursor:
    """Remembers how much of each task's output was handed out, so that a stream that begins anew goes on there."""

    __slots__ = ("_handed_out", "_position", "_tail_lines")

    def __init__(self, tail_lines: int) -> None:
        self._tail_lines = tail_lines
        self._handed_out: dict[tuple[str, int], int] = {}
        self._position: dict[tuple[str, int], int] = {}

    def begin_stream(self) -> None:
        """A new stream begins.

        Raises LogBrokeOffError when it is not the first and only the last lines were asked for: by now those may be
        others.
        """
        if self._handed_out and self._tail_lines:
            raise LogBrokeOffError("the log broke off; read it again, or without a limit on its lines")
        self._position.clear()

    def unread(self, message: cluster_manager_pb2.ReadLogsResponse) -> bytes:
        """The part of this chunk that had not been handed out."""
        task = (message.job, message.task)
        start = self._position.get(task, 0)
        end = start + len(message.chunk)
        handed_out = self._handed_out.get(task, 0)
        self._position[task] = end
        self._handed_out[task] = max(handed_out, end)
        return message.chunk[max(0, handed_out - start) :]
