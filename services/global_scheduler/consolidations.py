"""Whether the jobs of a workload are consolidated, and why: as a region that is asked for a place now would decide it."""

from __future__ import annotations

from collections.abc import Mapping

from cluster_manager.skew.consolidation import (
    Consolidation,
    ConsolidationReason,
    consolidation_of,
    consolidation_sentence,
)
from domain.identifiers import JobName
from domain.model_profile import KnownSkew
from domain.workload import WorkloadSpecification
from topmast.v1 import workload_pb2


def has_consolidations(specification: WorkloadSpecification) -> bool:
    """Whether it has a job of several tasks with GPUs."""
    return any(not _is_alone(consolidation_of(job, None, 0.0)) for job in specification.jobs)


def consolidations(
    specification: WorkloadSpecification,
    known: Mapping[JobName, KnownSkew],
    packlimit: float,
    trial_s: float | None = None,
) -> list[workload_pb2.Consolidation]:
    """Of its jobs of several tasks with GPUs; `known`: the skews that were reported; `trial_s` as in the settings."""
    messages = []
    for job in specification.jobs:
        one = consolidation_of(job, known.get(job.name), packlimit)
        if _is_alone(one):
            continue
        messages.append(
            workload_pb2.Consolidation(
                job=job.name,
                consolidate=one.consolidate,
                reason=one.reason,
                skew=None if one.known is None else one.known.skew,
                skew_source="" if one.known is None else one.known.source,
                packlimit=packlimit,
                sentence=consolidation_sentence(one, packlimit, trial_s),
            )
        )
    return messages


def _is_alone(one: Consolidation) -> bool:
    return one.reason is ConsolidationReason.ALONE
