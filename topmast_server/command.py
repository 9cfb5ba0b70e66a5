"""The command `topmast`, as it is installed."""

from __future__ import annotations


def main() -> None:
    """Runs the command line; ends the process with the exit code."""
    from services.command_line.main import main as run

    run()
