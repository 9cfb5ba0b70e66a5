"""What workloads asked for, kept in memory: the same ones come up for auction again and again.

They are handed out as they are to be placed now: jobs of high skew are consolidated (Tiresias §3.3), by what is known of them
at this moment.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from sqlalchemy import select

from cluster_manager.skew.consolidation import consolidated, may_be_consolidated
from cluster_manager.skew.one_machine import OneMachine, one_machine_of
from domain.fleet import Region
from domain.identifiers import WorkloadId
from domain.workload import Workload
from formats.scheduler_file import PlacementSection
from services.database.connection import AnyConnection
from services.database.core_statements import any_of, execute
from services.database.packlimit_store import load_packlimit
from services.database.profile_store import NamedWorkload, known_skews
from services.database.tables.workloads import WORKLOADS
from services.wire.workloads import specification_from_proto
from topmast.v1 import workload_pb2

NO_REVISIONS: Mapping[WorkloadId, int] = MappingProxyType({})
CAPACITY = 200_000
"""Workloads remembered; at about 2 KiB each this is a few hundred MiB at the very most."""


class SpecificationCache:
    """Workloads by name, least recently used ones forgotten, and those that are changed as soon as the region hears of it."""

    def __init__(self, placement: PlacementSection | None = None, capacity: int = CAPACITY) -> None:
        self._placement = placement or PlacementSection()
        self._one_machine: OneMachine | None = None
        self._capacity = capacity
        self._workloads: OrderedDict[WorkloadId, Workload] = OrderedDict()
        self._revisions: dict[WorkloadId, int] = {}
        """Of those that had been changed when they were read."""

    def __contains__(self, name: WorkloadId) -> bool:
        """Whether it is remembered."""
        return name in self._workloads

    def machines_changed(self, region: Region) -> None:
        """The region has these machines: what workloads may wait for depends on them."""
        self._one_machine = one_machine_of([region]) if self._placement.wait_for_consolidation else None

    def forget(self, name: WorkloadId) -> None:
        """It was changed, or has ended: it is read anew when it is asked for."""
        self._workloads.pop(name, None)
        self._revisions.pop(name, None)

    async def workloads(
        self,
        connection: AnyConnection,
        names: Sequence[WorkloadId],
        revisions: Mapping[WorkloadId, int] = NO_REVISIONS,
    ) -> dict[WorkloadId, Workload]:
        """All of these, as they are to be placed; raises LookupError when the database has no such workload. `revisions`: of
        those that have been changed, as the database has them now."""
        for name, revision in revisions.items():
            if self._revisions.get(name) != revision:
                self.forget(name)
        # What is remembered now may be forgotten while the database is asked for the rest: others ask for workloads meanwhile.
        remembered = {name: self._workloads[name] for name in names if name in self._workloads}
        missing = [name for name in names if name not in remembered]
        if missing:
            columns = (
                WORKLOADS.c.workload,
                WORKLOADS.c.specification,
                WORKLOADS.c.submitted_s,
                WORKLOADS.c.revision,
            )
            cursor = await execute(connection, select(*columns).where(any_of(WORKLOADS.c.workload, missing)))
            for workload, specification, submitted_s, revision in await cursor.fetchall():
                message = workload_pb2.WorkloadSpecification.FromString(bytes(specification))
                name = WorkloadId(workload)
                remembered[name] = Workload(name, specification_from_proto(message), submitted_s)
                if revision is not None:
                    self._revisions[name] = revision
        found: dict[WorkloadId, Workload] = {}
        for name in names:
            if name not in remembered:
                raise LookupError(f"the database has no workload {name}")
            found[name] = self._workloads[name] = remembered[name]
            self._workloads.move_to_end(name)
        while len(self._workloads) > self._capacity:
            self._revisions.pop(self._workloads.popitem(last=False)[0], None)
        await self._consolidate(connection, found)
        return found

    async def _consolidate(self, connection: AnyConnection, workloads: dict[WorkloadId, Workload]) -> None:
        """Decides for each job that may be consolidated whether it is. Most workloads have none: they cost nothing."""
        asked = [
            workload
            for workload in workloads.values()
            if any(may_be_consolidated(job) for job in workload.specification.jobs)
        ]
        if not asked:
            return
        wanted = [
            NamedWorkload(workload.workload, workload.specification.tenant, workload.specification.name)
            for workload in asked
        ]
        known = await known_skews(connection, wanted)
        if not known and not any(job.profile for workload in asked for job in workload.specification.jobs):
            return
        packlimit = self._placement.fixed_packlimit
        if packlimit is None:
            packlimit = (await load_packlimit(connection)).limit
        for workload in asked:
            skews = known.get(workload.workload, {})
            specification = consolidated(workload.specification, skews, packlimit, self._one_machine)
            if specification is not workload.specification:
                workloads[workload.workload] = replace(workload, specification=specification)
