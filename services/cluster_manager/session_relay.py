"""Passes on what a caller and the runner of a task say to each other in a session. Neither is faster than the other takes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, suppress

from domain.identifiers import AttemptNumber, JobName, WorkloadId
from formats.problems import FieldProblem
from services.cluster_manager.status_messages import name_problems
from services.execution.executor import Executor, SessionTarget
from services.execution.session_frames import (
    Frame,
    FrameKind,
    SessionCommand,
    SessionPort,
    SessionPurpose,
    TerminalSize,
    number_of,
)
from services.execution.session_link import SessionLink
from services.grpc_errors import InvalidArgument
from topmast.v1 import cluster_manager_pb2

LARGEST_INPUT_BYTES = 2**20
_OPENING_S = 10.0
_GREATEST_PORT = 65_535
_GREATEST_SIZE = 65_535
_NO_SIZE = f"must have rows and columns from 0 to {_GREATEST_SIZE}"
_LARGEST_COMMAND_BYTES = 2**17
"""What Linux takes for one argument."""

_LINGER_S = 0.5
_LONGEST_LINGER_S = 10.0

Requests = AsyncIterator[cluster_manager_pb2.OpenSessionRequest]
Respond = Callable[[cluster_manager_pb2.OpenSessionResponse], Awaitable[None]]


async def relay_session(executor: Executor, requests: Requests, respond: Respond) -> None:
    """One session, until its command or connection has ended. Raises what the executor does, and InvalidArgument."""
    target, purpose = opening_from_proto(await _first(requests))
    counted = _Counted(requests)
    async with AsyncExitStack() as work:
        async with executor.session(target, purpose) as link:
            task = link.task
            opened = cluster_manager_pb2.SessionOpened(attempt=task.key.attempt, job=task.job, task=task.task)
            await respond(cluster_manager_pb2.OpenSessionResponse(opened=opened))
            sending = asyncio.create_task(_send(counted, link))
            work.push_async_callback(_cancelled, sending)
            receiving = asyncio.create_task(_receive(link, respond))
            work.push_async_callback(_cancelled, receiving)
            await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                # What was wrong with the input; or it has merely ended.
                sending.result()
            await receiving
        await _linger(sending, counted)


class _Counted:
    """Requests, and how many of them have come."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self.taken = 0

    async def __aiter__(self) -> AsyncGenerator[cluster_manager_pb2.OpenSessionRequest, None]:
        async for request in self._requests:
            self.taken += 1
            yield request


async def _linger(sending: asyncio.Task[None], requests: _Counted) -> None:
    """Takes input that nobody needs any more, until the caller has ended it or sends none for a while.

    A caller of gRPC whose write fails before it has read our last answer sees an internal error in its place.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_LONGEST_LINGER_S):
            while not sending.done():
                before = requests.taken
                await asyncio.wait({sending}, timeout=_LINGER_S)
                if requests.taken == before:
                    return


async def _cancelled(work: asyncio.Task[None]) -> None:
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


def opening_from_proto(request: cluster_manager_pb2.OpenSessionRequest) -> tuple[SessionTarget, SessionPurpose]:
    """Which task, and what for. Raises InvalidArgument or MalformedMessage."""
    if request.WhichOneof("part") != "opening":
        raise InvalidArgument.of("opening", "must be in the first message")
    opening = request.opening
    problems = name_problems(opening.workload)
    for field, number in (("attempt", opening.attempt), ("task", opening.task)):
        if number < 0:
            problems.append(FieldProblem(field, f"is {number}; it cannot be negative"))
    purpose: SessionPurpose = SessionPort(opening.port)
    match opening.WhichOneof("purpose"):
        case "command":
            problems += _command_problems(opening.command)
            purpose = _command(opening.command)
        case "port":
            if not 1 <= opening.port <= _GREATEST_PORT:
                problems.append(
                    FieldProblem("port", f"is {opening.port}; ports are numbers from 1 to {_GREATEST_PORT}")
                )
        case _:
            problems.append(FieldProblem("command", "must be said, or a port"))
    if problems:
        raise InvalidArgument([FieldProblem(f"opening.{problem.field}", problem.description) for problem in problems])
    job = JobName(opening.job) if opening.job else None
    return SessionTarget(WorkloadId(opening.workload), AttemptNumber(opening.attempt), job, opening.task), purpose


def _command_problems(command: cluster_manager_pb2.SessionCommand) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if not command.arguments or not command.arguments[0]:
        problems.append(FieldProblem("command.arguments", "must say what to run"))
    if sum(len(argument.encode()) + 1 for argument in command.arguments) > _LARGEST_COMMAND_BYTES:
        problems.append(FieldProblem("command.arguments", f"must not be longer than {_LARGEST_COMMAND_BYTES} bytes"))
    if any("\0" in text for text in (*command.arguments, command.terminal.name)):
        problems.append(FieldProblem("command", "must not have a zero byte in it"))
    if command.HasField("terminal") and not _is_size(command.terminal.size):
        problems.append(FieldProblem("command.terminal.size", _NO_SIZE))
    return problems


def _command(command: cluster_manager_pb2.SessionCommand) -> SessionCommand:
    if not command.HasField("terminal"):
        return SessionCommand(tuple(command.arguments))
    size = TerminalSize(command.terminal.size.rows, command.terminal.size.columns)
    return SessionCommand(tuple(command.arguments), size, command.terminal.name or "dumb")


def _is_size(size: cluster_manager_pb2.TerminalSize) -> bool:
    return 0 <= size.rows <= _GREATEST_SIZE and 0 <= size.columns <= _GREATEST_SIZE


async def _first(requests: Requests) -> cluster_manager_pb2.OpenSessionRequest:
    try:
        async with asyncio.timeout(_OPENING_S):
            return await anext(requests)
    except (TimeoutError, StopAsyncIteration):
        raise InvalidArgument.of("opening", "must be the first message, at once") from None


async def _send(requests: _Counted, link: SessionLink) -> None:
    async for request in requests:
        match request.WhichOneof("part"):
            case "input":
                if len(request.input) > LARGEST_INPUT_BYTES:
                    described = f"has {len(request.input)} bytes; send at most {LARGEST_INPUT_BYTES} at once"
                    raise InvalidArgument.of("input", described)
                await link.send_input(request.input)
            case "resized":
                if not _is_size(request.resized):
                    raise InvalidArgument.of("resized", _NO_SIZE)
                link.resize(TerminalSize(request.resized.rows, request.resized.columns))
            case "opening":
                raise InvalidArgument.of("opening", "was said before")
            case _:
                raise InvalidArgument.of("part", "must be input, or resized")
    link.end_input()


async def _receive(link: SessionLink, respond: Respond) -> None:
    async with aclosing(link.outputs()) as frames:
        async for frame in frames:
            await respond(_response(frame))


def _response(frame: Frame) -> cluster_manager_pb2.OpenSessionResponse:
    match frame.kind:
        case FrameKind.OUTPUT:
            return cluster_manager_pb2.OpenSessionResponse(output=frame.content)
        case FrameKind.ERROR_OUTPUT:
            return cluster_manager_pb2.OpenSessionResponse(error_output=frame.content)
        case _:
            return cluster_manager_pb2.OpenSessionResponse(exit_code=number_of(frame))
