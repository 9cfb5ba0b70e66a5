"""topmast demo: the main job, on a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.command_line.files import replayable
from services.command_line.options import JsonOption

TraceOption = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="A trace (CSV, packed or not). Otherwise workloads are made after published percentiles.",
        show_default=False,
    ),
]
WorkloadsOption = Annotated[int, typer.Option("--workloads", min=1, help="How many, of the trace or made.")]
SeedOption = Annotated[int, typer.Option("--seed", help="The same seed makes the same workloads.")]
KeepOption = Annotated[
    Path | None,
    typer.Option(
        "--keep",
        file_okay=False,
        metavar="FOLDER",
        help="Use this folder, and leave the data and the event log there.",
        show_default=False,
    ),
]
LimitOption = Annotated[
    float, typer.Option("--duration-limit-s", min=10, help="Stop waiting after so many real seconds.")
]


def demo(
    trace: TraceOption = None,
    workloads: WorkloadsOption = 400,
    seed: SeedOption = 1,
    keep: KeepOption = None,
    duration_limit_s: LimitOption = 150.0,
    as_json: JsonOption = False,
) -> None:
    """Show everything: three regions, a trace on a compressed clock, real training that is preempted and resumes.

    Brings up a service of its own, submits, shows what happens, and ends with a summary and a check of the
    invariants. The exit code is 1 when one was violated, or not all workloads ended.
    """
    from services.demo.options import DemoOptions
    from services.demo.run import run_demo

    code = run_demo(
        DemoOptions(trace=trace, workloads=workloads, seed=seed, json=as_json, keep=keep, limit_real_s=duration_limit_s)
    )
    if code:
        raise typer.Exit(code)
