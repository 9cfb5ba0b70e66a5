"""Profiles in the service's database, for commands: one transaction each."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from domain.sensitivity import SensitivityProfile
from services.database import sensitivity_store
from services.database.connection import connect


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
