"""Which process serves what: leases with a fencing token, on the clock of the database server.

A lease names its holder and the address to call it at. It ends unless it is renewed in time; then the next
process that asks gets it, with a greater token, and with a secret of its own. The number says which lease is younger; the
secret, of which only a hash is stored, proves that an order comes from its holder. `assert_held` at the start of a transaction fences its writes: the
lease cannot go to another process before that transaction has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import func, literal, select

from domain.identifiers import ClusterId, RegionId
from services.database.connection import AnyConnection
from services.database.core_statements import any_of, execute
from services.database.tables.coordination import LEASES
from services.database.tables.fleet import CLUSTERS, REGIONS
from services.security.secret_values import hash_of, new_secret

GLOBAL_LEASE = "global"
REGIONAL_PREFIX = "regional/"
CLUSTER_PREFIX = "cluster/"

_IS_LIVE = LEASES.c.expires_at > func.clock_timestamp()

_REGIONS_WITH_LEASES = REGIONS.join(LEASES, LEASES.c.name == literal(REGIONAL_PREFIX) + REGIONS.c.region)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to be `name`, given to one holder at one time. A greater token is a younger lease."""

    name: str
    holder: str
    token: int
    secret: str = field(default="", repr=False, compare=False)
    """Shown with the token by whoever acts in its name. The number says which lease it is."""


@dataclass(frozen=True, slots=True)
class IssuedFence:
    """The newest token of a lease, and what is stored of its secret; None: it was given by a program that knew of none."""

    token: int
    secret_hash: str | None


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What any process may know of a lease."""

    name: str
    holder: str
    address: str
    process_id: int
    token: int
    held_since: datetime
    expires_at: datetime
    live: bool


ABSENCE_REAL_S = 30.0
"""A region whose scheduler has held no lease for so long is not waited for any more: what it has won and not begun, and
what was to go on there, runs elsewhere. A restart takes a few seconds."""


class LeaseLost(Exception):
    """Another process may hold the lease by now: nothing may be written in its name."""


async def acquire(
    connection: AnyConnection,
    name: str,
    holder: str,
    address: str,
    process_id: int,
    duration_s: float,
    tasks_stop_after_s: float | None = None,
) -> Lease | None:
    """The lease, from now on for `duration_s` real seconds; None while another process holds it.

    `holder` is unique to one run of one process. `tasks_stop_after_s`: for how long tasks that its holder watches over may
    outlive the lease, as it sees to; None where it watches over none. Asking again as the holder gives a greater token too: what was begun
    with the one before has ended when this returns, or is refused.
    """
    secret = new_secret()
    cursor = await connection.execute(
        """INSERT INTO leases AS l (name, holder, address, process_id, token, held_since, expires_at, tasks_stop_after_s,
                                    secret_hash, secret_token)
           VALUES (%(name)s, %(holder)s, %(address)s, %(process_id)s, 1, clock_timestamp(),
                   clock_timestamp() + make_interval(secs => %(duration_s)s), %(tasks_stop_after_s)s, %(secret_hash)s, 1)
           ON CONFLICT (name) DO UPDATE
              SET holder = excluded.holder, address = excluded.address, process_id = excluded.process_id,
                  token = l.token + 1, held_since = clock_timestamp(),
                  secret_hash = excluded.secret_hash, secret_token = l.token + 1,
                  tasks_stop_after_s = excluded.tasks_stop_after_s,
                  expires_at = clock_timestamp() + make_interval(secs => %(duration_s)s)
            WHERE l.expires_at <= clock_timestamp() OR l.holder = excluded.holder
        RETURNING token""",
        {
            "name": name,
            "holder": holder,
            "address": address,
            "process_id": process_id,
            "duration_s": duration_s,
            "tasks_stop_after_s": tasks_stop_after_s,
            "secret_hash": hash_of(secret),
        },
    )
    row = await cursor.fetchone()
    return None if row is None else Lease(name, holder, row[0], secret)


async def renew(connection: AnyConnection, lease: Lease, duration_s: float) -> bool:
    """Extends the lease to `duration_s` real seconds from now; False when another process has it.

    A lease that has ended, but that no other process has taken, is still ours.
    """
    cursor = await connection.execute(
        """UPDATE leases SET expires_at = clock_timestamp() + make_interval(secs => %s)
            WHERE name = %s AND token = %s AND holder = %s""",
        (duration_s, lease.name, lease.token, lease.holder),
    )
    return cursor.rowcount == 1


async def release(connection: AnyConnection, lease: Lease) -> None:
    """Ends the lease now, if it is still ours: a successor need not wait. The token is kept, to grow from."""
    await connection.execute(
        """UPDATE leases SET expires_at = clock_timestamp(), holder = ''
            WHERE name = %s AND token = %s AND holder = %s""",
        (lease.name, lease.token, lease.holder),
    )


async def assert_held(connection: AnyConnection, lease: Lease) -> None:
    """Returns when the lease is ours and stays so until this transaction ends; raises LeaseLost otherwise.

    The row stays locked until then: transactions in the name of one lease, and its renewals, pass one after the other. One whose
    process hangs for so long that its lease would be given up anyway is ended by the server: nobody else could have the lease before.
    """
    cursor = await connection.execute(
        """SELECT set_config('idle_in_transaction_session_timeout', '15s', true) FROM leases
            WHERE name = %s AND token = %s AND holder = %s AND expires_at > clock_timestamp()
              FOR NO KEY UPDATE""",
        (lease.name, lease.token, lease.holder),
    )
    if await cursor.fetchone() is None:
        raise LeaseLost(f"{lease.holder} does not hold the lease {lease.name} (token {lease.token}) any more")


async def fence_regions(connection: AnyConnection, regions: Sequence[RegionId]) -> None:
    """Makes the schedulers of these regions start anew from what this transaction leaves behind.

    Waits for what they are writing now; what they would write later in the name of their present lease is refused,
    because it may have been decided on what is no longer true. Its holder may acquire it again at once. Nobody is given the
    secret of the number in between: no order passes with it.
    """
    await connection.execute(
        """UPDATE leases SET token = token + 1, secret_hash = %s, secret_token = token + 1
            WHERE name IN (SELECT name FROM leases WHERE name = ANY(%s) ORDER BY name FOR NO KEY UPDATE)""",
        (hash_of(new_secret()), [f"{REGIONAL_PREFIX}{region}" for region in regions]),
    )


async def hold_regions(connection: AnyConnection, regions: Sequence[RegionId]) -> None:
    """Has the schedulers of these regions write nothing until this transaction ends; their leases stay theirs.

    Waits for what they are writing now. What they write afterwards sees what this transaction leaves behind: what
    must not be decided on an older state looks at its revision first, in the transaction in which it holds the lease.
    """
    names = [f"{REGIONAL_PREFIX}{region}" for region in regions]
    await execute(
        connection,
        select(LEASES.c.name)
        .where(any_of(LEASES.c.name, names))
        .order_by(LEASES.c.name)
        .with_for_update(key_share=True),
    )


async def newest_regional_fence(connection: AnyConnection, cluster: ClusterId) -> IssuedFence:
    """The greatest token ever given for the lease of this cluster's region, 0 when none was, and the hash of its secret."""
    cursor = await execute(
        connection,
        select(LEASES.c.token, LEASES.c.secret_hash, LEASES.c.secret_token)
        .select_from(LEASES.join(CLUSTERS, LEASES.c.name == literal(REGIONAL_PREFIX) + CLUSTERS.c.region))
        .where(CLUSTERS.c.cluster == cluster),
    )
    row = await cursor.fetchone()
    if row is None:
        return IssuedFence(0, None)
    token, secret_hash, secret_token = row
    # A program of the version before counts the token on and leaves the secret of another number behind.
    return IssuedFence(int(token), secret_hash if secret_token == token else None)


async def left_s(connection: AnyConnection, name: str) -> float | None:
    """For how many real seconds the lease is valid yet, negative: it ended so long ago; None when it was never given."""
    remaining = func.extract("epoch", LEASES.c.expires_at - func.clock_timestamp())
    cursor = await execute(connection, select(remaining).where(LEASES.c.name == name))
    row = await cursor.fetchone()
    return None if row is None else float(row[0])


@dataclass(frozen=True, slots=True)
class SeenLease:
    """A lease as any process sees it: who holds it, where that can be called, and for how many real seconds yet."""

    holder: str
    address: str
    left_s: float


async def look(connection: AnyConnection, name: str) -> SeenLease | None:
    """The lease as it stands, without waiting for who writes in its name; None when it was never given."""
    remaining = func.extract("epoch", LEASES.c.expires_at - func.clock_timestamp())
    statement = select(LEASES.c.holder, LEASES.c.address, remaining).where(LEASES.c.name == name)
    row = await (await execute(connection, statement)).fetchone()
    return None if row is None else SeenLease(str(row[0]), str(row[1]), float(row[2]))


async def address(connection: AnyConnection, name: str) -> str | None:
    """Where the holder of a lease can be called; None when no process holds it."""
    cursor = await execute(connection, select(LEASES.c.address).where(LEASES.c.name == name, _IS_LIVE))
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


@dataclass(frozen=True, slots=True)
class RegionalScheduler:
    """Who serves a region, where it can be called, and under which token."""

    region: RegionId
    address: str
    token: int


async def live_regional_schedulers(connection: AnyConnection) -> tuple[RegionalScheduler, ...]:
    """Those of the fleet's regions that hold their region's lease, sorted by region."""
    cursor = await execute(
        connection,
        select(REGIONS.c.region, LEASES.c.address, LEASES.c.token)
        .select_from(_REGIONS_WITH_LEASES)
        .where(_IS_LIVE)
        .order_by(REGIONS.c.region),
    )
    return tuple(RegionalScheduler(RegionId(row[0]), row[1], row[2]) for row in await cursor.fetchall())


async def live_regions(connection: AnyConnection) -> tuple[RegionId, ...]:
    """Regions of the fleet whose scheduler holds its lease, sorted: one that was taken out of the fleet decides nothing."""
    cursor = await execute(
        connection,
        select(REGIONS.c.region).select_from(_REGIONS_WITH_LEASES).where(_IS_LIVE).order_by(REGIONS.c.region),
    )
    return tuple(RegionId(row[0]) for row in await cursor.fetchall())


async def regions_with_lease(connection: AnyConnection) -> tuple[RegionId, ...]:
    """All regions whose scheduler holds its lease, sorted, also those that were taken out of the fleet: whoever may still write."""
    cursor = await execute(
        connection,
        select(func.substr(LEASES.c.name, len(REGIONAL_PREFIX) + 1))
        .where(func.starts_with(LEASES.c.name, REGIONAL_PREFIX), _IS_LIVE)
        .order_by(LEASES.c.name),
    )
    return tuple(RegionId(row[0]) for row in await cursor.fetchall())


async def served_regions(connection: AnyConnection, patience_real_s: float) -> set[RegionId]:
    """Regions of the fleet whose scheduler holds its lease, or held it until at most so long ago."""
    cursor = await connection.execute(
        """SELECT r.region FROM regions r JOIN leases l ON l.name = %s || r.region
            WHERE l.expires_at > clock_timestamp() - make_interval(secs => %s)""",
        (REGIONAL_PREFIX, patience_real_s),
    )
    return {RegionId(row[0]) for row in await cursor.fetchall()}


async def list_leases(connection: AnyConnection) -> list[LeaseRecord]:
    """All leases that ever were, sorted by name, and whether they are live."""
    cursor = await execute(
        connection,
        select(
            LEASES.c.name,
            LEASES.c.holder,
            LEASES.c.address,
            LEASES.c.process_id,
            LEASES.c.token,
            LEASES.c.held_since,
            LEASES.c.expires_at,
            _IS_LIVE,
        ).order_by(LEASES.c.name),
    )
    return [LeaseRecord(*row) for row in await cursor.fetchall()]
