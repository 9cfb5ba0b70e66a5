"""Whether a region takes part in the auction of a workload at all (MAST §4.3).

Rule: it abandons when the workload names other regions, when its hardware could not host the workload even if nothing
ran here, and when it lacks an input table (or is not its home, where the input must be fresh: §3.1). In this order, so
that a region that abandons for lack of data could run the workload once the data is there.

Ignores: what is running; that is the planner's business.
"""

from __future__ import annotations

from data_placement.catalog import Catalog
from domain.diagnosis import Diagnosis, Reason
from domain.identifiers import TableId
from domain.workload import WorkloadSpecification
from regional_scheduler.hosting import EmptyRegion
from regional_scheduler.rounds import Abandoned


def abandonment(region: EmptyRegion, specification: WorkloadSpecification, catalog: Catalog) -> Abandoned | None:
    """Why the region leaves the auction of the workload; None when it is eligible."""
    if specification.regions and region.region not in specification.regions:
        return Abandoned(
            Diagnosis(Reason.REGION_NOT_ALLOWED, region.region, field="regions"),
            f"the workload allows only {', '.join(sorted(specification.regions))}",
        )
    if (refusal := region.refusal(specification)) is not None:
        return Abandoned(refusal.diagnosis, refusal.sentence)
    missing = catalog.missing_tables(region.region, specification.tables)
    if missing:
        diagnosis = Diagnosis(Reason.NO_DATA, region.region, field="tables", tables=missing)
        return Abandoned(diagnosis, _missing_sentence(specification, missing, catalog))
    return None


def _missing_sentence(specification: WorkloadSpecification, missing: tuple[TableId, ...], catalog: Catalog) -> str:
    """Each missing table, and where it can be read."""
    where: dict[TableId, str] = {}
    for table_input in specification.tables:
        if table_input.table not in missing or (table_input.table in where and not table_input.fresh):
            continue
        held_in = catalog.regions_holding(table_input)
        fresh = "fresh only " if table_input.fresh else ""
        where[table_input.table] = f"{fresh}in {', '.join(held_in)}" if held_in else "nowhere"
    return "; ".join(f"table {table} is not here but {where[table]}" for table in missing)
