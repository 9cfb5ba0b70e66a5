"""Whose something is: what a caller who is limited to some tenants may see and touch."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from domain.identifiers import WorkloadId
from services.database.connection import AnyConnection


async def owned_workloads(
    connection: AnyConnection, names: Sequence[WorkloadId], tenants: Collection[str]
) -> set[WorkloadId]:
    """Those of these workloads and arrays that belong to one of the tenants."""
    wanted, owners = list(names), sorted(tenants)
    cursor = await connection.execute(
        """SELECT workload FROM workloads WHERE workload = ANY(%(names)s) AND tenant = ANY(%(tenants)s)
            UNION SELECT array_id FROM workloads
                   WHERE array_id = ANY(%(names)s) AND NOT beside_first AND tenant = ANY(%(tenants)s)""",
        {"names": wanted, "tenants": owners},
    )
    return {WorkloadId(row[0]) for row in await cursor.fetchall()}


async def note_package_owners(connection: AnyConnection, package: str, tenants: Collection[str]) -> None:
    """Workloads of these tenants may name the package, which is stored."""
    await connection.execute(
        """INSERT INTO package_owners (package, tenant)
           SELECT p.package, t FROM packages p, unnest(%s::text[]) AS t WHERE p.package = %s ON CONFLICT DO NOTHING""",
        (sorted(tenants), package),
    )


async def package_bytes_by_tenant(connection: AnyConnection, tenants: Collection[str], besides: str) -> dict[str, int]:
    """Bytes of the packages that are stored for each of these tenants, `besides` one; those of none are left out."""
    cursor = await connection.execute(
        """SELECT o.tenant, sum(p.size_bytes)::bigint FROM package_owners o JOIN packages p USING (package)
            WHERE o.tenant = ANY(%s) AND o.package <> %s GROUP BY o.tenant""",
        (sorted(tenants), besides),
    )
    return {str(tenant): int(size) for tenant, size in await cursor.fetchall()}


async def owners_of_packages(connection: AnyConnection, packages: Collection[str]) -> dict[str, set[str]]:
    """For which tenants each of them was uploaded; those of none are left out."""
    cursor = await connection.execute(
        "SELECT package, tenant FROM package_owners WHERE package = ANY(%s)", (sorted(packages),)
    )
    owners: dict[str, set[str]] = {}
    for package, tenant in await cursor.fetchall():
        owners.setdefault(package, set()).add(tenant)
    return owners


async def readable_tables(connection: AnyConnection, tables: Sequence[str], tenants: Collection[str]) -> set[str]:
    """Those of these tables that are there, and nobody's or of one of the tenants."""
    cursor = await connection.execute(
        """SELECT t.data_table FROM data_tables t
             LEFT JOIN data_namespaces n ON n.namespace = split_part(t.data_table, '.', 1) AND position('.' IN t.data_table) > 0
            WHERE t.data_table = ANY(%s) AND (coalesce(n.tenant, '') = '' OR n.tenant = ANY(%s))""",
        (list(tables), sorted(tenants)),
    )
    return {row[0] for row in await cursor.fetchall()}
