"""From an exception to an exit code and a sentence that says what to do; never a traceback."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from services.command_line.exit_code import ExitCode
from services.command_line.output import note

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
    ("services.profiling.measured_run", "NotMeasured", ExitCode.REFUSED),
    ("services.retention.archive", "ArchiveUnusable", ExitCode.REFUSED),
    ("services.simulation.worker_pool", "WorkerDied", ExitCode.INTERNAL),
    ("services.tiers.free_port", "PortNotAvailable", ExitCode.REFUSED),
    ("services.runtime.local", "ServiceNotStarted", ExitCode.UNAVAILABLE),
    ("services.runtime.local", "ServiceNotStopped", ExitCode.UNAVAILABLE),
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


@contextmanager
def reported(*, in_full: bool = False) -> Iterator[None]:
    """Ends the command with the right exit code, and a sentence on standard error, when what is inside fails.

    `in_full` is for servers, whose standard error is their log: an unforeseen error is logged with its traceback.
    """
    try:
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
        code, sentence = explain(error) or (ExitCode.INTERNAL, _internal(error, in_full))
        note(f"topmast: {sentence}")
        raise typer.Exit(code) from error


def _internal(error: Exception, in_full: bool) -> str:
    if in_full or os.environ.get(DEBUG_VARIABLE):
        note("".join(traceback.format_exception(error)))
    return (
        f"internal error ({type(error).__name__}: {error}); please report it, "
        f"with the output of the same command under {DEBUG_VARIABLE}=1"
    )
