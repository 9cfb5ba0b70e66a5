"""Programs of PostgreSQL that are run for a moment: which ones, and so that no password is among their arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from services.database.errors import UnsuitableDatabase
from services.database.supervisor import SupervisorFailed, find_programs


class ProgramFailed(Exception):
    """A program of PostgreSQL ended with an error; the message is what it said last."""


def run_program(name: str, url: str | None, arguments: Sequence[str | Path]) -> str:
    """Runs it to its end and returns what it printed; `url` is the database that it is to connect to, if it is to.

    Raises ProgramFailed, and UnsuitableDatabase where there is no such program.
    """
    environment = dict(os.environ)
    connection: list[str] = []
    if url is not None:
        parameters = conninfo_to_dict(url)
        password = parameters.pop("password", None)
        if password is not None:
            # The environment of a process is its owner's to read, its arguments are everybody's.
            environment["PGPASSWORD"] = str(password)
        connection = ["--dbname", make_conninfo("", **parameters), "--no-password"]
    ended = subprocess.run(
        [str(_program(name)), *connection, *map(str, arguments)],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if ended.returncode != 0:
        said = ended.stderr.strip().splitlines() or [f"it ended with {ended.returncode}"]
        raise ProgramFailed(next((line for line in said if "error" in line), said[-1]).removeprefix(f"{name}: error: "))
    return ended.stdout


def _program(name: str) -> Path:
    """The one beside the embedded server, else the one of this machine."""
    try:
        return find_programs() / name
    except SupervisorFailed:
        found = shutil.which(name)
    if found is None:
        raise UnsuitableDatabase(f"there is no {name} here: install the client programs of PostgreSQL")
    return Path(found)
