"""Why a region has no plan for a workload: the diagnosis, and a sentence with the numbers."""

from __future__ import annotations

from dataclasses import dataclass

from domain.diagnosis import Diagnosis, Reason
from domain.identifiers import JobName


@dataclass(frozen=True, slots=True)
class Refusal:
    """No plan. The diagnosis names the job that finds no room; the sentence is for people."""

    diagnosis: Diagnosis
    sentence: str
    room: tuple[int, ...] = ()
    """For how many of the job's tasks each cluster has room at most, in fleet order, if the job alone finds none."""

    @property
    def reason(self) -> Reason:
        return self.diagnosis.reason

    @property
    def job(self) -> JobName | None:
        return self.diagnosis.job
