"""How fast attempts work by the CPUs and memory that they hold: by the sensitivity profiles with which they began."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from domain.fleet import Machine
from domain.identifiers import JobName
from domain.job_fingerprint import job_fingerprint
from domain.placement import TaskPlacement
from domain.proportional_shares import ProportionalShares
from domain.tuned_speed import NO_PROFILES, ProfilesOfJobs, tuned_speed
from domain.work_rate import work_rate
from domain.workload import WorkloadSpecification
from formats.trace_workload import model_of
from services.database.sensitivity_store import StoredProfile


class ProfileBook:
    """The profiles by name and revision, as far as any attempt may need them."""

    def __init__(self, stored: Iterable[StoredProfile] = ()) -> None:
        self._by_name: dict[str, list[StoredProfile]] = {}
        self.add(stored)

    def add(self, stored: Iterable[StoredProfile]) -> None:
        """These have come since, in the order of their revisions."""
        for each in stored:
            self._by_name.setdefault(each.name, []).append(each)

    def of_jobs(self, specification: WorkloadSpecification, revision: int) -> ProfilesOfJobs:
        """The profiles of the workload's jobs as of that revision: what was measured of the very job comes before its model's."""
        if not self._by_name:
            return NO_PROFILES
        return {job: stored.profile for job, stored in self.stored_of_jobs(specification, revision).items()}

    def stored_of_jobs(self, specification: WorkloadSpecification, revision: int) -> Mapping[JobName, StoredProfile]:
        """The same with their names."""
        found: dict[JobName, StoredProfile] = {}
        for job, names in names_of_profiles(specification).items():
            for name in names:
                stored = self._at(name, revision)
                if stored is not None:
                    found[job] = stored
                    break
        return found

    def _at(self, name: str, revision: int) -> StoredProfile | None:
        versions = self._by_name.get(name, [])
        position = bisect_right(versions, revision, key=lambda stored: stored.revision)
        return versions[position - 1] if position else None


def names_of_profiles(specification: WorkloadSpecification) -> dict[JobName, tuple[str, ...]]:
    """Under which names a profile of each job with GPUs may be kept: its own comes first."""
    model = model_of(specification)
    return {
        job.name: tuple([name for name in (job_fingerprint(job, model), model) if name])
        for job in specification.jobs
        if job.resources.gpus > 0
    }


@dataclass(frozen=True, slots=True)
class TunedWork:
    """What decides how fast an attempt works, wherever it is."""

    profiles: ProfilesOfJobs
    shares: ProportionalShares
    revision: int = 0
    """Of the profiles, when the attempt began; 0: it knows none."""

    def rate(self, specification: WorkloadSpecification, placements: Sequence[TaskPlacement]) -> float:
        """Seconds of work per second with these tasks. Raises KeyError for one on a machine that is not known."""
        rate = work_rate(specification.jobs, placements)
        return rate * tuned_speed(self.profiles, placements, self.shares) if self.profiles else rate


UNTUNED = TunedWork(NO_PROFILES, ProportionalShares(()))
"""Of an attempt that knows no profile: as fast with whatever it holds."""


class TunedWorks:
    """Says of the attempts of some machines how they work."""

    def __init__(self, machines: Iterable[Machine], stored: Iterable[StoredProfile] = (), revision: int = 0) -> None:
        self.shares = ProportionalShares(machines)
        self._book = ProfileBook(stored)
        self._revision = revision

    def take_over(self, stored: Iterable[StoredProfile], revision: int) -> None:
        """The profiles are at this revision now: these have come since the one before."""
        self._book.add(stored)
        self._revision = revision

    def machines_changed(self, machines: Iterable[Machine]) -> None:
        """From now on these are the machines: what was answered before is to be brought `on_present_machines`."""
        self.shares = ProportionalShares(machines)

    def on_present_machines(self, tuned: TunedWork) -> TunedWork:
        """The same profiles, with the shares of the machines that there are now."""
        return replace(tuned, shares=self.shares) if tuned.profiles else tuned

    def beginning(self, specification: WorkloadSpecification) -> TunedWork:
        """Of an attempt that begins now."""
        return self.of(specification, self._revision)

    def of(self, specification: WorkloadSpecification, revision: int) -> TunedWork:
        """Of an attempt that began when the profiles were at this revision."""
        profiles = self._book.of_jobs(specification, revision)
        return TunedWork(profiles, self.shares, revision) if profiles else UNTUNED
