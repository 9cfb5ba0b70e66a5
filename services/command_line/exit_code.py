"""What the exit codes of `topmast` mean (docs/cli.md)."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    NOT_WELL = 1
    """What was looked at is not well: violations in a log; a workload that was waited for has not completed."""
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    """Bad content of a file or a request, or not possible as things stand."""
    UNAVAILABLE = 5
    """Topmast, or something that it needs, does not answer or does not start."""
    INTERNAL = 70
    """Something that should not happen, here or in the service."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141
