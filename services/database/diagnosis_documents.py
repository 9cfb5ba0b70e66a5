"""Diagnoses as JSON documents, back to what they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from domain.diagnosis import Diagnosis, Numbers, Quantity, Reason
from domain.identifiers import ClusterId, JobName, RegionId, TableId


def diagnosis_from_document(document: Mapping[str, Any]) -> Diagnosis:
    """What `Diagnosis.as_json` wrote. Raises ValueError for a reason or quantity that is unknown."""
    numbers = {Quantity(quantity): amounts for quantity, amounts in document.get("numbers", {}).items()}
    return Diagnosis(
        reason=Reason(document["reason"]),
        region=RegionId(document["region"]) if "region" in document else None,
        cluster=ClusterId(document["cluster"]) if "cluster" in document else None,
        job=JobName(document["job"]) if "job" in document else None,
        field=document.get("field", ""),
        # In the order of the enum: PostgreSQL keeps no order of the keys of a document.
        numbers=tuple(
            Numbers(quantity, numbers[quantity]["asked"], numbers[quantity]["available"])
            for quantity in Quantity
            if quantity in numbers
        ),
        tables=tuple(TableId(table) for table in document.get("tables", ())),
        since_s=document.get("since_s"),
        cells_asked=document.get("cells_asked", ""),
        cells_owned=document.get("cells_owned", ""),
        by_region=tuple(diagnosis_from_document(one) for one in document.get("by_region", ())),
    )
