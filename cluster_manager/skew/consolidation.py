"""Which jobs are consolidated (Tiresias §3.3.2): the one place that decides it, for the service and for simulations.

Rule: "if S_J is larger than PACKLIMIT, Tiresias attempts to consolidate the job in as few machines as possible. [...] For
the rest, Tiresias allocates GPUs in machines to decrease fragmentation." A job that asks for it is consolidated in any case,
and one of unknown skew is not.

Invariant: what is decided depends on the job, on what is known of its skew and on the limit, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from cluster_manager.skew.one_machine import OneMachine
from domain.affinity import CellAffinity, JobAffinity
from domain.cells import MACHINE_LEVEL
from domain.identifiers import JobName
from domain.model_profile import KnownSkew, SkewSource
from domain.workload import JobSpecification, WorkloadSpecification

ON_ONE_MACHINE = JobAffinity(CellAffinity(MACHINE_LEVEL, hard=True))


class ConsolidationReason(StrEnum):
    """Why a job is consolidated or not."""

    ASKED = "asked"
    ALONE = "alone"
    """It has one task, or no GPUs: there is nothing to bring together."""
    UNKNOWN = "unknown_skew"
    ABOVE = "above_packlimit"
    BELOW = "not_above_packlimit"


class Consolidation(NamedTuple):
    """What is decided for one job."""

    consolidate: bool
    reason: ConsolidationReason
    known: KnownSkew | None
    """The skew that it was decided by, if any is known."""


def may_be_consolidated(job: JobSpecification) -> bool:
    """Whether its skew matters: it has GPUs, may have several tasks, and does not ask to be consolidated anyway."""
    return job.resources.gpus > 0 and job.greatest_tasks > 1 and not job.consolidate


def declared_skew(job: JobSpecification) -> KnownSkew | None:
    """The skew that the job itself declares."""
    return None if job.profile is None else KnownSkew(job.profile.skew, SkewSource.DECLARED)


def is_sensitive(skew: float, packlimit: float) -> bool:
    """Whether a job of this skew is to be consolidated."""
    return skew > packlimit


def consolidation_of(job: JobSpecification, known: KnownSkew | None, packlimit: float) -> Consolidation:
    """Whether the job is consolidated. `known` is its skew where it declares none itself."""
    known = declared_skew(job) or known
    if job.consolidate:
        return Consolidation(True, ConsolidationReason.ASKED, known)
    if not may_be_consolidated(job):
        return Consolidation(False, ConsolidationReason.ALONE, known)
    if known is None:
        return Consolidation(False, ConsolidationReason.UNKNOWN, None)
    if is_sensitive(known.skew, packlimit):
        return Consolidation(True, ConsolidationReason.ABOVE, known)
    return Consolidation(False, ConsolidationReason.BELOW, known)


def consolidated(
    specification: WorkloadSpecification,
    known: Mapping[JobName, KnownSkew],
    packlimit: float,
    waits_for: OneMachine | None = None,
) -> WorkloadSpecification:
    """The workload as it is to be placed: each job whose skew is known with `consolidate` or `fills_fragments`.

    With `waits_for` such a job must be on one machine if it fits on one of these, and waits for it; a larger one, and one
    that says itself where it must be, is as close together as there is room. The very same object where nothing changes,
    as for all work without a profile.
    """
    changed = False
    jobs = list(specification.jobs)
    for position, job in enumerate(specification.jobs):
        if not may_be_consolidated(job):
            continue
        decided = consolidation_of(job, known.get(job.name), packlimit)
        if decided.consolidate:
            waits = waits_for is not None and job.affinity.is_plain and waits_for.holds(job)
            jobs[position] = replace(job, consolidate=True, affinity=ON_ONE_MACHINE if waits else job.affinity)
            changed = True
        elif decided.reason is ConsolidationReason.BELOW and not job.fills_fragments:
            jobs[position] = replace(job, fills_fragments=True)
            changed = True
    return replace(specification, jobs=tuple(jobs)) if changed else specification


_SOURCES = MappingProxyType(
    {
        SkewSource.DECLARED: "declared",
        SkewSource.REPORTED: "reported by its own attempts",
        SkewSource.OF_ITS_NAME: "reported by an earlier workload of its name",
    }
)


def consolidation_sentence(decided: Consolidation, packlimit: float, trial_s: float | None = None) -> str:
    """For people: consolidated: its skew 0.715 (declared) is above PACKLIMIT 0.378. `trial_s`: as in the settings."""
    known = decided.known
    skew = "" if known is None else f"its skew {known.skew:.3g} ({_SOURCES[known.source]})"
    match decided.reason:
        case ConsolidationReason.ASKED:
            return "consolidated: it asks for that"
        case ConsolidationReason.ALONE:
            return "not consolidated: there are not several tasks with GPUs to bring together"
        case ConsolidationReason.UNKNOWN:
            unknown = "not consolidated: the skew of its model is not known yet"
            if trial_s is None:
                return unknown
            return (
                f"{unknown}; the attempt that reports it is its trial: after {trial_s:g} s it goes on on fewer machines "
                f"if the skew is above PACKLIMIT {packlimit:.3g} and there is room"
            )
        case ConsolidationReason.ABOVE:
            return f"consolidated: {skew} is above PACKLIMIT {packlimit:.3g}"
        case ConsolidationReason.BELOW:
            return f"not consolidated: {skew} is not above PACKLIMIT {packlimit:.3g}"
