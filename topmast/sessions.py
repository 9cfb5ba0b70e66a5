"""What goes into a session with a running task, and what comes out: a command beside it, or a port of its machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, Protocol

from topmast.errors import NotFoundError, PreconditionError, UnavailableError
from topmast.logs import LogSelection, state_words
from topmast.messages import message_of, refused, shown, strings
from topmast.v1 import cluster_manager_pb2
from topmast.workloads import Attempt, Workload, WorkloadState

INPUT_CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Execution:
    """How a command has ended. `exit_code` is 128 and the number of the signal where one killed it; `output` and
    `error_output` are what it has printed, unless that went to files."""

    exit_code: int
    output: bytes
    error_output: bytes


class TerminalSize(NamedTuple):
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """The task beside which a session is opened, and the cluster that runs it."""

    workload: str
    attempt: int
    cluster: str
    job: str
    task: int

    def opening(self, purpose: cluster_manager_pb2.SessionCommand | int) -> cluster_manager_pb2.OpenSessionRequest:
        """The first message of the session, for a command or for a port; raises InvalidArgumentError for what is no port."""
        opening = cluster_manager_pb2.SessionOpening(
            workload=self.workload, attempt=self.attempt, job=self.job, task=self.task
        )
        if isinstance(purpose, int):
            opening.port = message_of(cluster_manager_pb2.SessionOpening, port=purpose).port
        else:
            opening.command.CopyFrom(purpose)
        return cluster_manager_pb2.OpenSessionRequest(opening=opening)


def session_command(
    arguments: Sequence[str], terminal: TerminalSize | None = None, terminal_name: str = ""
) -> cluster_manager_pb2.SessionCommand:
    """The command as it is asked for; raises InvalidArgumentError for what is none."""
    if not strings("command", arguments):
        raise refused("command", "must say what to run")
    command = message_of(cluster_manager_pb2.SessionCommand, arguments=arguments)
    if terminal is not None:
        command.terminal.size.CopyFrom(size_to_proto(terminal))
        command.terminal.name = terminal_name
    return command


def size_to_proto(size: TerminalSize) -> cluster_manager_pb2.TerminalSize:
    return cluster_manager_pb2.TerminalSize(rows=size.rows, columns=size.columns)


def input_request(given: bytes | TerminalSize) -> cluster_manager_pb2.OpenSessionRequest:
    """What was typed, or another size of the terminal."""
    if isinstance(given, TerminalSize):
        return cluster_manager_pb2.OpenSessionRequest(resized=size_to_proto(given))
    return cluster_manager_pb2.OpenSessionRequest(input=given)


def session_place(workload: Workload, job: str, task: int) -> SessionPlace:
    """Where the task runs now; `job` empty: the first job.

    Raises InvalidArgumentError for an array, NotFoundError where there is no such job or task, PreconditionError where it does not run, with the state and why.
    """
    name = job or workload.specification.jobs[0].name
    LogSelection(workload.workload, None, name, task).checked().of(workload).refuse_unknown_tasks(workload)
    running = _running_attempt(workload)
    if running is None:
        raise PreconditionError(f"workload {workload.workload} does not run, it is {state_words(workload)}")
    if any(one.name == name and one.emulated is not None for one in workload.specification.jobs):
        raise PreconditionError(
            f"job {name} of workload {workload.workload} is emulated: there is no process, and nothing runs beside it"
        )
    cluster = next((one.cluster for one in running.placements if (one.job, one.task) == (name, task)), None)
    if cluster is None:
        numbers = ", ".join(str(one.task) for one in running.placements if one.job == name)
        raise NotFoundError(f"job {name} of workload {workload.workload} has at present only the tasks {numbers}")
    return SessionPlace(workload.workload, running.attempt, cluster, name, task)


def _running_attempt(workload: Workload) -> Attempt | None:
    if workload.state not in (WorkloadState.RUNNING, WorkloadState.PREEMPTING):
        return None
    return next((one for one in reversed(workload.attempts) if one.ended_s is None and one.started_s is not None), None)


class Destination(Protocol):
    """What can be written to."""

    def write(self, content: bytes, /) -> object: ...


class CommandOutput:
    """Takes what a command prints: into files, where there are some, else it is kept."""

    def __init__(self, stdout: Destination | None, stderr: Destination | None) -> None:
        self._output = bytearray()
        self._error_output = bytearray()
        self._write: Callable[[bytes], object] = self._output.extend if stdout is None else stdout.write
        self._write_error: Callable[[bytes], object] = self._error_output.extend if stderr is None else stderr.write
        self._exit_code: int | None = None

    def take(self, response: cluster_manager_pb2.OpenSessionResponse) -> None:
        match response.WhichOneof("part"):
            case "output":
                self._write(response.output)
            case "error_output":
                self._write_error(response.error_output)
            case "exit_code":
                self._exit_code = response.exit_code
            case _:
                return

    def result(self) -> Execution:
        """Raises UnavailableError when nobody has said how the command ended."""
        if self._exit_code is None:
            raise UnavailableError("the session broke off before its command had ended")
        return Execution(self._exit_code, bytes(self._output), bytes(self._error_output))


def as_input(stdin: bytes | BinaryIO) -> Callable[[], bytes]:
    """Reads the next part of what the command gets; empty at the end. Raises InvalidArgumentError for what cannot be read."""
    if isinstance(stdin, (bytes, bytearray, memoryview)):
        left = memoryview(stdin)

        def cut() -> bytes:
            nonlocal left
            part, left = left[:INPUT_CHUNK_BYTES], left[INPUT_CHUNK_BYTES:]
            return bytes(part)

        return cut
    if not hasattr(stdin, "read"):
        raise refused("stdin", f"must be bytes, or a file opened for reading bytes, not {shown(stdin)}")
    return lambda: stdin.read(INPUT_CHUNK_BYTES)
