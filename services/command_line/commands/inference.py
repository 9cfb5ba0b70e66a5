"""topmast inference-scheduler: answers how many machines inference needs, from a series or from Ray Serve."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from formats.problems import FieldProblem, FormatError
from services.command_line.files import replayable

if TYPE_CHECKING:
    from services.inference.demand import DemandSource

_COMMAND = "inference-scheduler"
_LARGEST_PORT = 65_535

ListenOption = Annotated[str, typer.Option("--listen", help="host:port to listen on; port 0 is any free one.")]
SeriesOption = Annotated[
    Path | None,
    typer.Option(
        "--series",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="Play this CSV file (columns t_s, busy_pod_fraction), again and again.",
    ),
]
ServeOption = Annotated[bool, typer.Option("--ray-serve", help="Watch the deployments of Ray Serve.")]
ApplicationOption = Annotated[str, typer.Option("--application", help="Only this application of Ray Serve.")]
RayOption = Annotated[str, typer.Option("--ray-address", help="Where Ray answers; auto: the one of this machine.")]
GpusOption = Annotated[int, typer.Option("--gpus-per-machine", min=0, help="GPUs of a machine that serves.")]
CpusOption = Annotated[float, typer.Option("--cpus-per-machine", min=0.0, help="CPUs of a machine that serves.")]
WithinOption = Annotated[
    float | None,
    typer.Option("--reclaim-within-s", min=0.0, help="Machines that are asked back must be back in so many seconds."),
]


def inference_scheduler(
    listen: ListenOption = "127.0.0.1:0",
    series: SeriesOption = None,
    ray_serve: ServeOption = False,
    application: ApplicationOption = "",
    ray_address: RayOption = "auto",
    gpus_per_machine: GpusOption = 0,
    cpus_per_machine: CpusOption = 0.0,
    reclaim_within_s: WithinOption = None,
) -> None:
    """Answer regional schedulers how many machines inference needs, until interrupted: the `address` of a cluster's `inference`."""
    import asyncio

    from services.tiers.free_port import PortNotAvailable, require_port

    if (series is None) == (not ray_serve):
        raise typer.BadParameter("give either --series FILE or --ray-serve")
    if ray_serve and gpus_per_machine == 0 and cpus_per_machine == 0:
        described = "say what a machine has: --gpus-per-machine and --cpus-per-machine"
        raise typer.BadParameter(described, param_hint="--ray-serve")
    if not math.isfinite(cpus_per_machine):
        raise typer.BadParameter(f"is {cpus_per_machine}; give a number", param_hint="--cpus-per-machine")
    if reclaim_within_s is not None and not math.isfinite(reclaim_within_s):
        described = f"is {reclaim_within_s}; give a number of seconds, or leave it out: no deadline"
        raise typer.BadParameter(described, param_hint="--reclaim-within-s")
    host, port = _place(listen)
    if port:
        try:
            require_port(host, port)
        except PortNotAvailable as error:
            why = getattr(error.__cause__, "strerror", None) or str(error)
            described = (
                f"nothing can listen at {listen} ({why}); name another address or port, or port 0 for any free one"
            )
            raise FormatError(_COMMAND, [FieldProblem("--listen", described)]) from error
    source: DemandSource
    if series is not None:
        from services.inference.series import SeriesDemand

        source = SeriesDemand(series, reclaim_within_s)
        source.read()
    else:
        from services.inference.ray_serve import MachineSize, RayServeDemand

        _open_ray(ray_address)
        source = RayServeDemand(MachineSize(gpus_per_machine, cpus_per_machine), application, reclaim_within_s)
    asyncio.run(_serve(source, listen))


def _place(listen: str) -> tuple[str, int]:
    """Host and port. Raises BadParameter."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _LARGEST_PORT:
        described = f"is {listen!r}; give host:port, with a port from 0 (any free one) to {_LARGEST_PORT}"
        raise typer.BadParameter(described, param_hint="--listen")
    return host.strip("[]"), int(port)


def _open_ray(address: str) -> None:
    """Raises FormatError where Ray Serve is not installed, or no Ray answers there."""
    from services.inference.demand import NoDemand
    from services.inference.ray_serve import check_ray_serve

    try:
        check_ray_serve()
    except NoDemand as error:
        raise FormatError(_COMMAND, [FieldProblem("--ray-serve", str(error))]) from error
    import ray

    try:
        ray.init(address=address, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        described = f"no Ray answers at {address} ({said}); start it (ray start --head), or give its host:port"
        raise FormatError(_COMMAND, [FieldProblem("--ray-address", described)]) from error


async def _serve(source: DemandSource, listen: str) -> None:
    import asyncio
    import signal

    from services.clock import SystemClock
    from services.command_line.output import note
    from services.inference.server import inference_server

    server = inference_server(source, SystemClock())
    port = await server.start(listen)
    await server.set_serving(serving=True)
    note(f"listening on {listen.rpartition(':')[0]}:{port}")
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()
    await server.stop(1.0)
    await source.close()
