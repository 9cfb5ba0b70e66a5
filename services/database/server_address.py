"""Which database to use: the one that TOPMAST_DATABASE_URL names, else the embedded one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from services.database.embedded import start_embedded
from services.database.errors import DatabaseUnavailable, UnsuitableDatabase
from services.security.secret_texts import without_passwords

URL_VARIABLE = "TOPMAST_DATABASE_URL"
OLDEST_MAJOR_VERSION = 15

_WHICH = "target_session_attrs"
"""Of several servers that an URL may name, the one to take."""

_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")


def resolve_database_url(home: Path, environment: Mapping[str, str], *, settings: Sequence[str] = ()) -> str:
    """The URL of the database to use, which answers and is suitable; starts the embedded server if that is the one.

    `settings`: further ones of the embedded server, as `name=value`, if it is not up yet.

    Raises:
        UnsuitableDatabase: TOPMAST_DATABASE_URL names something that Topmast cannot use.
        DatabaseUnavailable: nothing answers there.
        EmbeddedServerFailed: the embedded server does not start.
    """
    if not (url := environment.get(URL_VARIABLE, "").strip()):
        return start_embedded(home, settings=settings)
    url = normalise_url(url)
    check_server(url)
    return url


def normalise_url(url: str) -> str:
    """The URL as libpq wants it; raises UnsuitableDatabase when it is not one of PostgreSQL."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise UnsuitableDatabase(
            f"{URL_VARIABLE} must look like postgresql://user:password@host:5432/database; its scheme is {scheme!r}"
            if separator
            else f"{URL_VARIABLE} must look like postgresql://user:password@host:5432/database"
        )
    normal = f"postgresql://{rest}"
    parameters = _parameters(normal)
    if parameters is None:
        # What libpq says repeats what it could not read: of a password with a slash in it a part.
        raise UnsuitableDatabase(
            f"{URL_VARIABLE} cannot be read: in a name or a password, @ is written as %40, : as %3A, / as %2F, % as %25"
        )
    if "," in f"{parameters.get('host', '')}{parameters.get('hostaddr', '')}" and _WHICH not in parameters:
        # A replica answers, too, and refuses whatever is written.
        normal += f"{'&' if '?' in normal else '?'}{_WHICH}=read-write"
    return normal


def _parameters(url: str) -> dict[str, object] | None:
    """What libpq reads in it; None where it cannot."""
    try:
        parameters: dict[str, object] = {**conninfo_to_dict(url)}
    except psycopg.ProgrammingError:
        return None
    ports = str(parameters.get("port") or "").split(",")
    return parameters if all(port.isdecimal() or not port for port in ports) else None


def check_server(url: str) -> None:
    """Returns when a PostgreSQL of a version that Topmast can use answers at the URL.

    Raises DatabaseUnavailable when nothing does, UnsuitableDatabase when it is too old.
    """
    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            version = connection.info.server_version
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable(
            f"no database answers at {URL_VARIABLE}: {without_passwords(str(error).strip())}"
        ) from error
    if version // 10_000 < OLDEST_MAJOR_VERSION:
        raise UnsuitableDatabase(
            f"the database at {URL_VARIABLE} is PostgreSQL {version // 10_000}.{version % 10_000}: "
            f"Topmast needs version {OLDEST_MAJOR_VERSION} or newer"
        )
