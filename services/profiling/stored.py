"""Profiles in the service's database, for commands: one transaction each."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from domain.sensitivity import SensitivityProfile
from services.database import sensitivity_store
from services.database.connection import connect
from services.database.errors import UnsuitableDatabase
from services.database.migrations_runner import current, newest


def require_tables(url: str) -> None:
    """Raises UnsuitableDatabase where the tables are not those of this program."""
    here = current(url)
    if here != newest():
        raise UnsuitableDatabase(
            f"the database is at revision {here or 'empty'}, and this program needs {newest()}; run 'topmast db upgrade',"
            " or start the service with 'topmast up'"
        )


def stored_profiles(url: str, names: Collection[str] = ()) -> dict[str, SensitivityProfile]:
    """The profiles that hold now, by name, sorted; only these names, if there are any."""

    async def load() -> dict[str, SensitivityProfile]:
        async with await connect(url) as connection:
            return await sensitivity_store.load_newest(connection, names)

    return asyncio.run(load())


def keep_profiles(url: str, profiles: Mapping[str, SensitivityProfile]) -> int:
    """Stores them; returns the revision of all profiles. Regions see it when they look next, which is within seconds."""

    async def store() -> int:
        async with await connect(url) as connection:
            return await sensitivity_store.store_profiles(connection, profiles)

    return asyncio.run(store())
