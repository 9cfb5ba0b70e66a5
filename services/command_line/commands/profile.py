"""topmast profile: how fast jobs are with which CPUs and memory (Synergy §3.1)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.exit_code import ExitCode
from services.command_line.extras import Extra
from services.command_line.failures import reported
from services.command_line.files import replayable
from services.command_line.options import DatabaseOption, HomeOption, JsonOption, in_a_folder
from services.command_line.output import TextTable, note, show, show_json, show_line
from services.command_line.reached_database import reached_database

if TYPE_CHECKING:
    from domain.sensitivity import SensitivityProfile
    from domain.workload import JobSpecification
    from services.profiling.measured_run import Effort, Measurement
    from services.profiling.procedure import DataSet

app = typer.Typer(name="profile", help="How fast jobs are with which CPUs and memory.", no_args_is_help=True)

# Everything after the first word that is no option belongs to the program.
_RUN_SETTINGS = {"allow_interspersed_args": False}

CommandArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- COMMAND...", help="The program of a task, as `topmast run` gets it.", show_default=False
    ),
]
FunctionOption = Annotated[
    str, typer.Option("--function", metavar="MODULE:FUNCTION", help="A Python function instead of a program.")
]
GpusOption = Annotated[int, typer.Option("--gpus", min=1, max=62, help="GPUs of a task.")]
ModelOption = Annotated[
    str, typer.Option("--model", help="What it trains: the label `model` of its workloads.", show_default=False)
]
EnvironmentOption = Annotated[
    list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="For the program. May be repeated.")
]
CpusOption = Annotated[
    int | None,
    typer.Option(
        "--cpus-per-gpu", min=1, help="The most to measure with; else all of this machine.", show_default=False
    ),
]
MemoryOption = Annotated[
    float | None,
    typer.Option(
        "--memory-gib-per-gpu", min=0.001, help="The most it may have; else all of this machine.", show_default=False
    ),
]
DatasetOption = Annotated[
    float | None,
    typer.Option("--dataset-gib", min=1e-6, help="What an epoch reads; nothing when left out.", show_default=False),
]
IterationOption = Annotated[
    float | None,
    typer.Option("--gib-per-iteration", min=0.0, help="What an iteration reads of it.", show_default=False),
]
StorageOption = Annotated[
    float | None,
    typer.Option("--storage-gib-per-s", min=1e-9, help="How fast storage delivers it.", show_default=False),
]
IterationsOption = Annotated[int, typer.Option("--iterations", min=1, help="To measure with each number of CPUs.")]
LeastOption = Annotated[
    float, typer.Option("--least-s", min=0.0, help="Iterations for so long, with each number of CPUs.")
]
TimeoutOption = Annotated[float, typer.Option("--timeout-s", min=1.0, help="For each number of CPUs.")]
AgainOption = Annotated[bool, typer.Option("--again", help="Measure also where there is a profile of such a job.")]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        dir_okay=False,
        callback=in_a_folder,
        help="Write the profile here (CSV), and need no database.",
        show_default=False,
    ),
]
NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Models, or fingerprints of jobs; all when left out.", show_default=False),
]
FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", exists=True, dir_okay=False, callback=replayable, help="Profiles (CSV).", show_default=False
    ),
]
OutArgument = Annotated[
    Path,
    typer.Argument(metavar="FILE", dir_okay=False, callback=in_a_folder, help="Profiles (CSV).", show_default=False),
]


@app.command("run", context_settings=_RUN_SETTINGS)
@reported(needs=Extra.SERVER)
def run(
    command: CommandArgument = None,
    function: FunctionOption = "",
    gpus: GpusOption = 1,
    model: ModelOption = "",
    env: EnvironmentOption = None,
    cpus_per_gpu: CpusOption = None,
    memory_gib_per_gpu: MemoryOption = None,
    dataset_gib: DatasetOption = None,
    gib_per_iteration: IterationOption = None,
    storage_gib_per_s: StorageOption = None,
    iterations: IterationsOption = 50,
    least_s: LeastOption = 5.0,
    timeout_s: TimeoutOption = 300.0,
    again: AgainOption = False,
    out: OutOption = None,
    database_url: DatabaseOption = None,
    home: HomeOption = None,
) -> None:
    """Run a program on few and on many CPUs of this machine, and keep how fast it was: for all jobs that run it."""
    from services.profiling.measured_run import Effort

    job = _job(command or (), function, gpus, env or ())
    data = _data_set(dataset_gib, gib_per_iteration, storage_gib_per_s)
    effort = Effort(iterations, least_s, timeout_s)
    name = _fingerprint(job, model)
    if out is not None:
        from formats.atomic_file import atomic_file
        from formats.profiles_file import write_profiles

        measured = {model or name: _measured(job, cpus_per_gpu, memory_gib_per_gpu, data, effort)}
        with atomic_file(out) as part:
            write_profiles(part, measured)
        show_line(f"wrote the profile of {model or name} to {out}")
        return
    from services.database.migrations_runner import require_tables
    from services.profiling.stored import keep_profiles, stored_profiles

    with reached_database(database_url, home) as url:
        require_tables(url)
        known = stored_profiles(url, [name])
        if known and not again:
            show_line(f"{name} has a profile already; measure it anew with --again")
        else:
            known = {name: _measured(job, cpus_per_gpu, memory_gib_per_gpu, data, effort)}
            keep_profiles(url, known)
            show_line(f"stored the profile of {name}: jobs that are dispatched from now on are tuned by it")
    show(_grid(name, known[name]))


@app.command("show")
@reported(needs=Extra.SERVER)
def show_profiles(
    names: NamesArgument = None,
    database_url: DatabaseOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the profiles that the service tunes by: of each model, or of each job that was measured."""
    profiles = _stored(names or (), database_url, home)
    if as_json:
        for name, profile in profiles.items():
            show_json({"name": name, "profile": profile})
    elif names:
        show(*(_grid(name, profile) for name, profile in profiles.items()))
    else:
        rows = [
            (
                name,
                _range(profile.cpus_per_gpu),
                _range(profile.memory_gib_per_gpu),
                f"{profile.throughput[0][0] / profile.greatest:.3f}",
            )
            for name, profile in profiles.items()
        ]
        head = ("name", "CPUs per GPU", "GiB per GPU", "least speed of the greatest")
        show(TextTable("", head, rows, right=frozenset({1, 2, 3})))


@app.command("import")
@reported(needs=Extra.SERVER)
def import_profiles(file: FileArgument, database_url: DatabaseOption = None, home: HomeOption = None) -> None:
    """Store the profiles of a file: in place of those of the same names, for what is dispatched from now on."""
    from formats.profiles_file import read_profiles
    from services.database.migrations_runner import require_tables
    from services.profiling.stored import keep_profiles

    profiles = read_profiles(file)
    with reached_database(database_url, home) as url:
        require_tables(url)
        revision = keep_profiles(url, profiles)
    show_line(f"stored {len(profiles)} profiles; all profiles are at revision {revision}")


@app.command("export")
@reported(needs=Extra.SERVER)
def export_profiles(
    file: OutArgument, names: NamesArgument = None, database_url: DatabaseOption = None, home: HomeOption = None
) -> None:
    """Write stored profiles to a file: for `topmast simulate --profiles`, or to be imported elsewhere."""
    from formats.atomic_file import atomic_file
    from formats.profiles_file import write_profiles

    profiles = _stored(names or (), database_url, home)
    with atomic_file(file) as part:
        write_profiles(part, profiles)
    show_line(f"wrote {len(profiles)} profiles to {file}")


def _stored(names: list[str] | tuple[()], database_url: str | None, home: Path | None) -> dict[str, SensitivityProfile]:
    """The stored profiles; ends the command where there is none of a name, or none at all."""
    from formats.profiles_file import unknown_model
    from services.database.migrations_runner import require_tables
    from services.profiling.stored import stored_profiles

    with reached_database(database_url, home) as url:
        require_tables(url)
        profiles = stored_profiles(url)
    unknown = [name for name in names if profiles and name not in profiles]
    for name in unknown:
        note(f"topmast: {unknown_model(name, profiles)}")
    if not profiles:
        note(
            "topmast: there are no profiles; measure with 'topmast profile run', or read some with 'topmast profile import'"
        )
    if unknown or not profiles:
        raise typer.Exit(ExitCode.NOT_FOUND)
    return {name: profile for name, profile in profiles.items() if not names or name in names}


def _job(command: list[str] | tuple[()], function: str, gpus: int, env: list[str] | tuple[()]) -> JobSpecification:
    from domain.identifiers import JobName
    from domain.resources import TaskResources
    from domain.workload import Command, JobSpecification, PythonCallable

    if bool(command) == bool(function):
        raise typer.BadParameter("say what to run: -- COMMAND..., or --function; and only one of them")
    pairs = [tuple(text.partition("=")) for text in env]
    for name, separator, _ in pairs:
        if not (name and separator):
            raise typer.BadParameter(f"'{name}' does not read NAME=VALUE", param_hint="--env")
    return JobSpecification(
        JobName("main"),
        1,
        TaskResources(gpus=gpus),
        PythonCallable(function) if function else Command(tuple(command)),
        environment=tuple((name, value) for name, _, value in pairs),
    )


def _fingerprint(job: JobSpecification, model: str) -> str:
    from domain.job_fingerprint import job_fingerprint

    name = job_fingerprint(job, model)
    if name is None:
        raise typer.BadParameter("an emulated job cannot be measured")
    return name


def _data_set(
    dataset_gib: float | None, gib_per_iteration: float | None, storage_gib_per_s: float | None
) -> DataSet | None:
    from services.profiling.procedure import DataSet

    if dataset_gib is None and gib_per_iteration is None and storage_gib_per_s is None:
        return None
    if dataset_gib is None or gib_per_iteration is None or storage_gib_per_s is None:
        raise typer.BadParameter("give --dataset-gib, --gib-per-iteration and --storage-gib-per-s, or none of them")
    return DataSet(dataset_gib, gib_per_iteration, storage_gib_per_s)


def _measured(
    job: JobSpecification,
    cpus_per_gpu: int | None,
    memory_gib_per_gpu: float | None,
    data: DataSet | None,
    effort: Effort,
) -> SensitivityProfile:
    from services.profiling.here import profile_here

    def tell(cpus: int, measurement: Measurement) -> None:
        note(f"{cpus} CPUs per GPU: {measurement.iterations_per_s:.4g} iterations/s, {measurement.process_gib:.2f} GiB")

    return profile_here(job, cpus_per_gpu, memory_gib_per_gpu, data, effort, tell)


def _grid(name: str, profile: SensitivityProfile) -> TextTable:
    """Speed with each amount, as part of the greatest."""
    head = ("CPUs per GPU", *(f"{amount:g} GiB" for amount in profile.memory_gib_per_gpu))
    rows = [
        (f"{cpus:g}", *(f"{speed / profile.greatest:.3f}" for speed in row))
        for cpus, row in zip(profile.cpus_per_gpu, profile.throughput, strict=True)
    ]
    return TextTable(name, head, rows, right=frozenset(range(len(head))))


def _range(axis: tuple[float, ...]) -> str:
    return f"{axis[0]:g}" if len(axis) == 1 else f"{axis[0]:g}-{axis[-1]:g}"
