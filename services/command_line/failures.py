"""From an exception to an exit code and a sentence that says what to do; never a traceback."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import NoReturn, ParamSpec

import typer

from services.command_line.exit_code import ExitCode
from services.command_line.extras import Extra, ExtraMissing, extra_of, require
from services.command_line.option_names import option_name
from services.command_line.output import note

Arguments = ParamSpec("Arguments")

DEBUG_VARIABLE = "TOPMAST_DEBUG"
"""Set: an internal error shows its traceback."""

# By name, and the more special first: importing all these modules only to know the types would take longer than most
# commands. One that was never imported cannot have raised anything.
_KNOWN: tuple[tuple[str, str, ExitCode], ...] = (
    ("topmast.errors", "NotFoundError", ExitCode.NOT_FOUND),
    ("topmast.errors", "UnavailableError", ExitCode.UNAVAILABLE),
    ("topmast.errors", "DeadlineError", ExitCode.UNAVAILABLE),
    ("topmast.errors", "TopmastError", ExitCode.REFUSED),
    ("formats.problems", "UnreadableInput", ExitCode.USAGE),
    ("formats.problems", "FormatError", ExitCode.REFUSED),
    ("data_placement.solvers.mixed_integer", "TooLarge", ExitCode.REFUSED),
    ("data_placement.solvers.saved_search", "CannotResume", ExitCode.REFUSED),
    ("services.database.errors", "DatabaseUnavailable", ExitCode.UNAVAILABLE),
    ("services.database.errors", "UnsuitableDatabase", ExitCode.REFUSED),
    ("services.database.embedded", "EmbeddedServerFailed", ExitCode.UNAVAILABLE),
    ("services.database.migrations_runner", "MigrationFailed", ExitCode.REFUSED),
    ("services.database.backup", "BackupFailed", ExitCode.REFUSED),
    ("services.profiling.measured_run", "NotMeasured", ExitCode.REFUSED),
    ("services.retention.archive", "ArchiveUnusable", ExitCode.REFUSED),
    ("services.simulation.worker_pool", "WorkerDied", ExitCode.INTERNAL),
    ("services.security.certificate_folder", "CertificatesUnusable", ExitCode.REFUSED),
    ("services.tiers.free_port", "PortNotAvailable", ExitCode.REFUSED),
    ("services.runtime.serve", "NotInFleet", ExitCode.NOT_FOUND),
    ("services.runtime.serve", "NoTierToken", ExitCode.REFUSED),
    ("services.security.settings", "AuthenticationNeeded", ExitCode.REFUSED),
    ("services.runtime.code_on_ray", "RayNotJoined", ExitCode.UNAVAILABLE),
    ("services.execution.task_user", "UserImpossible", ExitCode.REFUSED),
    ("services.runtime.host_lock", "HostLockTaken", ExitCode.UNAVAILABLE),
    ("services.runtime.local", "ServiceNotStarted", ExitCode.UNAVAILABLE),
    ("services.runtime.local", "ServiceNotStopped", ExitCode.UNAVAILABLE),
    ("services.runtime.local", "HomeNotWritable", ExitCode.REFUSED),
    ("services.runtime.home_processes", "ProcessesLeft", ExitCode.UNAVAILABLE),
)

_INTERNAL = frozenset({"INTERNAL", "UNKNOWN", "DATA_LOSS", "UNIMPLEMENTED"})
"""gRPC's codes for what should not happen in the service."""


def explain(error: Exception) -> tuple[ExitCode, str] | None:
    """Exit code and sentence for a failure that can happen; None for one that should not."""
    for module, name, code in _KNOWN:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(error, kind):
            status = getattr(getattr(error, "code", None), "name", "")
            return ExitCode.INTERNAL if status in _INTERNAL else code, _sentence(error)
    if isinstance(error, ModuleNotFoundError) and (extra := extra_of(error)) is not None:
        return ExitCode.UNAVAILABLE, str(ExtraMissing(extra, (error.name or "").partition(".")[0]))
    if isinstance(error, ExtraMissing):
        return ExitCode.UNAVAILABLE, str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return ExitCode.USAGE, f"{error.filename}: {error.strerror}"
    return None


def _sentence(error: Exception) -> str:
    errors = sys.modules.get("topmast.errors")
    if errors is not None and isinstance(error, errors.UnreachableError):
        return f"{error}; start it with 'topmast up', or say where it is with --address or TOPMAST_ADDRESS"
    if errors is not None and isinstance(error, errors.ResourceExhaustedError) and error.retry_after_s:
        return f"{error}; try again in {error.retry_after_s:g} s"
    return str(error)


def not_there(name: str, known: Collection[str], what: str) -> NoReturn:
    """Ends the command: there is no such thing; says what was probably meant, or what there is."""
    from formats.problems import suggestion

    note(f"topmast: there is no {what} {name}; {suggestion(name, known, what)}")
    raise typer.Exit(ExitCode.NOT_FOUND)


def reported(
    *, needs: Extra | None = None, in_full: bool = False
) -> Callable[[Callable[Arguments, None]], Callable[Arguments, None]]:
    """Lets a command end with the right exit code, and a sentence on standard error, when it fails.

    What a request had wrong is told by the command's own options. `needs` is what must be installed besides `topmast` for
    anything of it; the command does not begin without. `in_full` is for servers, whose standard error is their log: an
    unforeseen error is logged with its traceback.
    """

    def decorated(command: Callable[Arguments, None]) -> Callable[Arguments, None]:
        @wraps(command)
        def reporting(*arguments: Arguments.args, **said: Arguments.kwargs) -> None:
            with _reported(lambda field: option_name(command, said, field), needs, in_full=in_full):
                command(*arguments, **said)

        return reporting

    return decorated


@contextmanager
def _reported(rename: Callable[[str], str], needs: Extra | None, *, in_full: bool) -> Iterator[None]:
    try:
        if needs is not None:
            require(needs)
        yield
    except (typer.TyperException, typer.Exit, typer.Abort):
        # Wrong usage, which typer itself reports; or an exit that was decided on.
        raise
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of our output (`| head`) has enough. What is left in the buffer must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitCode.BROKEN_PIPE) from None
    except Exception as error:
        code, sentence = explain(_renamed(error, rename)) or (ExitCode.INTERNAL, _internal(error, in_full))
        note(f"topmast: {sentence}")
        raise typer.Exit(code) from error


def _renamed(error: Exception, rename: Callable[[str], str]) -> Exception:
    errors = sys.modules.get("topmast.errors")
    return error.renamed(rename) if errors is not None and isinstance(error, errors.TopmastError) else error


def _internal(error: Exception, in_full: bool) -> str:
    if in_full or os.environ.get(DEBUG_VARIABLE):
        note("".join(traceback.format_exception(error)))
    return (
        f"internal error ({type(error).__name__}: {error}); please report it, "
        f"with the output of the same command under {DEBUG_VARIABLE}=1"
    )
