"""Whether a region takes part in the auction of a workload at all (MAST §4.3).

Rule: it abandons when the workload names other regions, when its hardware could not host the workload even if nothing
ran here, and when it lacks an input table (or is not its home, where the input must be fresh: §3.1). In this order, so
that a region that abandons for lack of data could run the workload once the data is there.

Ignores: what is running; that is the planner's business.
"""

from __future__ import annotations

from data_placement.catalog import Catalog
from domain.diagnosis import Diagnosis, Reason
from domain.workload import WorkloadSpecification
from regional_scheduler.hosting import EmptyRegion
from regional_scheduler.refusal_sentences import sentence_about_regions, sentence_about_tables
from regional_scheduler.rounds import Abandoned


def abandonment(region: EmptyRegion, specification: WorkloadSpecification, catalog: Catalog) -> Abandoned | None:
    """Why the region leaves the auction of the workload; None when it is eligible."""
    if specification.regions and region.region not in specification.regions:
        return Abandoned(
            Diagnosis(Reason.REGION_NOT_ALLOWED, region.region, field="regions"),
            sentence_about_regions(specification),
        )
    if (refusal := region.refusal(specification)) is not None:
        return Abandoned(refusal.diagnosis, refusal.sentence)
    missing = catalog.missing_tables(region.region, specification.tables)
    if missing:
        diagnosis = Diagnosis(Reason.NO_DATA, region.region, field="tables", tables=missing)
        return Abandoned(diagnosis, sentence_about_tables(diagnosis, specification, catalog))
    return None
