"""Diagnoses, as clients get them."""

from __future__ import annotations

from domain.diagnosis import Diagnosis
from topmast.v1 import workload_pb2


def diagnosis_to_proto(diagnosis: Diagnosis) -> workload_pb2.Diagnosis:
    """Names that do not apply are empty, a time that does not apply is not set."""
    return workload_pb2.Diagnosis(
        reason=diagnosis.reason.value,
        region=diagnosis.region or "",
        cluster=diagnosis.cluster or "",
        job=diagnosis.job or "",
        field=diagnosis.field,
        numbers=[
            workload_pb2.DiagnosisNumbers(
                quantity=number.quantity.value, asked=number.asked, available=number.available
            )
            for number in diagnosis.numbers
        ],
        tables=diagnosis.tables,
        since_s=diagnosis.since_s,
        cells_asked=diagnosis.cells_asked,
        cells_owned=diagnosis.cells_owned,
    )
