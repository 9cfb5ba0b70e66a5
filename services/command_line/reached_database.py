"""How commands reach the database, where they need it themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def reached_database(said: str | None, home: Path | None, *, may_begin: bool = False) -> Iterator[str]:
    """The URL of the database; an embedded server that no other process was using is stopped at the end.

    Raises UnsuitableDatabase for a home without an embedded database, unless one may begin there.
    """
    from services.database.embedded import is_running, is_there, stop_embedded
    from services.database.errors import UnsuitableDatabase
    from services.database.server_address import URL_VARIABLE, resolve_database_url
    from services.runtime.home import default_home

    folder = (home or default_home()).expanduser().resolve()
    embedded = not (said or os.environ.get(URL_VARIABLE, "").strip())
    if embedded and not may_begin and not is_there(folder):
        raise UnsuitableDatabase(
            f"there is no database in {folder}; name the folder of a Topmast with --home or TOPMAST_HOME, or a server"
            " with --database-url"
        )
    was_running = is_running(folder)
    url = resolve_database_url(folder, {URL_VARIABLE: said} if said else os.environ)
    try:
        yield url
    finally:
        if embedded and not was_running:
            stop_embedded(folder)
