"""topmast port-forward: ports of a task's machine, here."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from services.command_line.connection import connect_on_loop
from services.command_line.exit_code import ExitCode
from services.command_line.options import AddressOption, JobOfTaskOption, TaskNumberOption, WorkloadArgument
from services.command_line.output import note

if TYPE_CHECKING:
    from topmast import AsyncClient, Workload
    from topmast.sessions import SessionPlace, TerminalSize

_CHUNK_BYTES = 65_536
_GREATEST_PORT = 65_535
_PORTS = re.compile(r"(?:(?P<local>\d{0,5}):)?(?P<remote>\d{1,5})")

PortsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="[LOCAL:]REMOTE...",
        help="The port there, and the one here if it is another; :REMOTE takes any free one here.",
        show_default=False,
    ),
]
ListenOption = Annotated[
    str, typer.Option("--listen", metavar="HOST", help="Where to listen; others than 127.0.0.1 let other machines in.")
]


class ForwardedPort(NamedTuple):
    """`local` 0: any free one."""

    local: int
    remote: int


def port_forward(
    workload: WorkloadArgument,
    ports: PortsArgument,
    job: JobOfTaskOption = "",
    task: TaskNumberOption = 0,
    listen: ListenOption = "127.0.0.1",
    address: AddressOption = None,
) -> None:
    """Make ports of a task's machine reachable here, until the attempt ends: topmast port-forward WORKLOAD 6006."""
    forwarded = [_ports(text) for text in ports]
    ended = asyncio.run(_forward(address, workload, job, task, forwarded, listen))
    if ended.state != "COMPLETED":
        raise typer.Exit(ExitCode.NOT_WELL)


def _ports(text: str) -> ForwardedPort:
    found = _PORTS.fullmatch(text)
    if found is None or not 1 <= int(found["remote"]) <= _GREATEST_PORT or int(found["local"] or 0) > _GREATEST_PORT:
        raise typer.BadParameter(f"'{text}' does not read [LOCAL:]REMOTE, with ports from 1 to {_GREATEST_PORT}")
    remote = int(found["remote"])
    return ForwardedPort(remote if found["local"] is None else int(found["local"] or 0), remote)


async def _forward(
    address: str | None, workload: str, job: str, task: int, ports: list[ForwardedPort], host: str
) -> Workload:
    """The workload as it is when the attempt has ended."""
    from topmast.sessions import session_place

    async with connect_on_loop(address) as client, AsyncExitStack() as servers:
        place = session_place(await client.get(workload), job, task)
        for local, remote in ports:
            serve = partial(_serve, client, place, remote)
            try:
                server = await asyncio.start_server(serve, host, local, limit=_CHUNK_BYTES)
            except (OSError, OverflowError) as error:
                raise typer.BadParameter(
                    f"nothing can listen at port {local} of {host} ({error}); say another one, as :{remote}"
                ) from error
            servers.callback(server.close)
            number = server.sockets[0].getsockname()[1]
            note(f"{host}:{number} is port {remote} at task {place.task} of job {place.job} of {workload}")
        now = await _until_it_ends(client, place)
    note(f"attempt {place.attempt} of {workload} has ended: it is {now.state}")
    return now


async def _until_it_ends(client: AsyncClient, place: SessionPlace) -> Workload:
    async with aclosing(client.watch(place.workload)) as changes:
        async for now in changes:
            ended = any(one.attempt == place.attempt and one.ended_s is not None for one in now.attempts)
            if ended or now.state.ended:
                break
    return now


async def _serve(
    client: AsyncClient, place: SessionPlace, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """One connection."""
    from topmast import TopmastError

    async def received() -> AsyncGenerator[bytes | TerminalSize, None]:
        while chunk := await reader.read(_CHUNK_BYTES):
            yield chunk

    try:
        async with aclosing(client.sessions.open(place, place.opening(port), received())) as responses:
            async for response in responses:
                writer.write(response.output)
                await writer.drain()
    except TopmastError as error:
        note(f"topmast: {error}")
    except ConnectionError:
        # Whoever connected is gone.
        return
    finally:
        writer.close()
