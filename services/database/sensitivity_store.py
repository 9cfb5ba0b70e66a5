"""Sensitivity profiles by name: a model, or the fingerprint of recurring jobs (`domain.job_fingerprint`).

A profile that is replaced stays for as long as an attempt runs that began with it: how fast emulated work goes must not
change by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from domain.sensitivity import SensitivityProfile
from services.database.channels import CATALOG_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.revision_store import Subject, lock_revision, raise_revision


class StoredProfile(NamedTuple):
    """A profile, and the revision of all profiles since which it holds."""

    name: str
    revision: int
    profile: SensitivityProfile


_NEWEST = """
    SELECT DISTINCT ON (name) name, revision, cpus_per_gpu, memory_gib_per_gpu, throughput
      FROM sensitivity_profiles ORDER BY name, revision DESC"""

_SINCE = """
    SELECT name, revision, cpus_per_gpu, memory_gib_per_gpu, throughput
      FROM sensitivity_profiles WHERE revision > %s ORDER BY name, revision"""

_NAMED = """
    SELECT name, revision, cpus_per_gpu, memory_gib_per_gpu, throughput
      FROM sensitivity_profiles WHERE name = ANY(%s) ORDER BY name, revision"""

_INSERT = """
    INSERT INTO sensitivity_profiles (name, revision, cpus_per_gpu, memory_gib_per_gpu, throughput)
    VALUES (%s, %s, %s, %s, %s)"""

_DELETE_OUTDATED = """
    DELETE FROM sensitivity_profiles p
     WHERE EXISTS (SELECT FROM sensitivity_profiles n
                    WHERE n.name = p.name AND n.revision > p.revision
                      AND n.revision <= least(%(before)s, (SELECT min(a.profiles_revision) FROM attempts a
                                                            WHERE a.ended_s IS NULL AND a.profiles_revision > 0)))"""


async def store_profiles(connection: AnyConnection, profiles: Mapping[str, SensitivityProfile]) -> int:
    """Keeps the profiles in place of those of the same names; returns the revision. What is known already changes nothing."""
    revision = await lock_revision(connection, Subject.PROFILES)
    known = await load_newest(connection)
    changed = {name: profile for name, profile in sorted(profiles.items()) if known.get(name) != profile}
    if not changed:
        return revision
    revision = await raise_revision(connection, Subject.PROFILES)
    async with connection.cursor() as cursor:
        await cursor.executemany(
            _INSERT,
            [
                (
                    name,
                    revision,
                    list(profile.cpus_per_gpu),
                    list(profile.memory_gib_per_gpu),
                    [speed for row in profile.throughput for speed in row],
                )
                for name, profile in changed.items()
            ],
        )
    # What is being dispatched at this moment may have begun with the profiles of the revision before.
    await connection.execute(_DELETE_OUTDATED, {"before": revision - 1})
    wake_after_commit(connection, CATALOG_CHANNEL)
    return revision


async def load_newest(connection: AnyConnection, names: Collection[str] = ()) -> dict[str, SensitivityProfile]:
    """The profiles that hold now, by name; only these names, if there are any."""
    cursor = await connection.execute(_NEWEST)
    found = {row[0]: _profile(row) for row in await cursor.fetchall()}
    return {name: profile for name, profile in found.items() if not names or name in names}


async def load_since(connection: AnyConnection, revision: int) -> tuple[StoredProfile, ...]:
    """The profiles that have come after that revision, by name and revision; -1: all."""
    cursor = await connection.execute(_SINCE, (revision,))
    return tuple([StoredProfile(row[0], row[1], _profile(row)) for row in await cursor.fetchall()])


async def load_named(connection: AnyConnection, names: Collection[str]) -> tuple[StoredProfile, ...]:
    """The profiles of these names, by name and revision."""
    cursor = await connection.execute(_NAMED, (sorted(names),))
    return tuple([StoredProfile(row[0], row[1], _profile(row)) for row in await cursor.fetchall()])


def _profile(row: Sequence[object]) -> SensitivityProfile:
    _name, _revision, cpus, memory, throughput = row
    if not (isinstance(cpus, list) and isinstance(memory, list) and isinstance(throughput, list)):
        raise TypeError(f"the axes and throughputs of a profile are not lists: {row!r}")
    columns = len(memory)
    rows = tuple([tuple(throughput[start : start + columns]) for start in range(0, len(throughput), columns)])
    return SensitivityProfile(tuple(cpus), tuple(memory), rows)
