"""topmast inference-scheduler: answers how many machines inference needs, from a series or from Ray Serve."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from formats.problems import FieldProblem, FormatError

if TYPE_CHECKING:
    from services.inference.demand import DemandSource

ListenOption = Annotated[str, typer.Option("--listen", help="host:port to listen on; port 0 is any free one.")]
SeriesOption = Annotated[
    Path | None, typer.Option("--series", help="Play this CSV file (columns t_s, busy_pod_fraction), again and again.")
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

    if (series is None) == (not ray_serve):
        raise FormatError("inference-scheduler", [FieldProblem("", "give either --series FILE or --ray-serve")])
    if ray_serve and gpus_per_machine == 0 and cpus_per_machine == 0:
        described = "say what a machine has: --gpus-per-machine and --cpus-per-machine"
        raise FormatError("inference-scheduler", [FieldProblem("--ray-serve", described)])
    source: DemandSource
    if series is not None:
        from services.inference.series import SeriesDemand

        source = SeriesDemand(series, reclaim_within_s)
    else:
        import ray

        from services.inference.ray_serve import MachineSize, RayServeDemand

        ray.init(address=ray_address, log_to_driver=False)
        source = RayServeDemand(MachineSize(gpus_per_machine, cpus_per_machine), application, reclaim_within_s)
    asyncio.run(_serve(source, listen))


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
