"""The URL of a database that was typed with its password: a process that stays does not show it among its arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_OPTION = "--database-url"


def leave_out_of_arguments(database_url: str) -> None:
    """Begins this program anew with the URL in its environment, if it holds a password and is among the arguments of this process."""
    from services.database.server_address import URL_VARIABLE
    from services.security.secret_texts import without_passwords

    if without_passwords(database_url) == database_url:
        return
    arguments = without_option(sys.orig_argv[1:], database_url)
    if len(arguments) < len(sys.orig_argv) - 1:
        os.execve(sys.executable, [sys.executable, *arguments], {**os.environ, URL_VARIABLE: database_url})  # noqa: S606 - this very program, without a shell


def without_option(arguments: Sequence[str], value: str) -> list[str]:
    """The arguments without the option that names this URL."""
    kept: list[str] = []
    for argument in arguments:
        if argument == value and kept and kept[-1] == _OPTION:
            kept.pop()
        elif argument != f"{_OPTION}={value}":
            kept.append(argument)
    return kept
