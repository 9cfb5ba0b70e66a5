"""I7: under tuning no job is slower than with its proportional share; and none claims to be faster than its profile says.

Only where sensitivity profiles are known, and only for workloads that name a model with one. What a job asked for itself
is its own choice: I7 is about CPUs and memory that it left open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domain.sensitivity import AmountsPerGpu, SensitivityProfile
from simulator.validation.lives import AttemptLife, WorkloadLife
from simulator.validation.machines import Claim
from simulator.validation.record_fields import Record, optional_number
from simulator.validation.report import Findings, Invariant

RELATIVE_SLACK = 1e-9


class TunedSpeeds:
    """Compares what attempts hold, and how fast they say they are, with the profiles of their models."""

    def __init__(self, profiles: Mapping[str, SensitivityProfile], findings: Findings) -> None:
        self.checks = 0
        self._profiles = profiles
        self._findings = findings

    def check(self, life: WorkloadLife, attempt: AttemptLife, claims: Sequence[Claim], record: Record) -> None:
        """The attempt holds this from now on. Raises BadField."""
        profile = self._profiles.get(life.model)
        if profile is None:
            return
        speeds: list[float] = []
        workers: list[float] = []
        for name, job in life.jobs.items():
            claimed = [claim for claim in claims if claim.job == name]
            workers.append(max(1.0, len(claimed) / max(1, job.tasks)))
            tasks = [claim for claim in claimed if claim.gpus]
            if not tasks:
                continue
            speed = _speed(profile, tasks)
            speeds.append(speed)
            self.checks += 1
            if job.cpus is None and job.mebibytes is None and speed < 1.0 - RELATIVE_SLACK:
                self._findings.add(
                    Invariant.I7,
                    f"{attempt.name} holds so little CPU or memory that job {name} is {speed:.6g} times as fast as with its"
                    " proportional share",
                )
        stated = optional_number(record, "speed")
        # Jobs advance together: the slowest counts, and the one with the fewest tasks beside its base tasks.
        most = min(speeds, default=1.0) * min(workers, default=1.0)
        if stated is not None and stated > most * (1.0 + RELATIVE_SLACK):
            self._findings.add(
                Invariant.I9,
                f"{attempt.name} says it works at speed {stated:.6g}, but its tasks, CPUs and memory allow"
                f" {most:.6g} at most",
            )


def _speed(profile: SensitivityProfile, tasks: Sequence[Claim]) -> float:
    """How many times as fast as with proportional shares on the same machines; the slowest task counts."""
    held = min(profile.throughput_with(_per_gpu(claim.millicpus, claim.mebibytes, len(claim.gpus))) for claim in tasks)
    # Tuning gives what each GPU comes with in whole thousandths and MiB; a task of several may have begun with a little more.
    share = min(
        profile.throughput_with(
            _per_gpu(claim.machine.millicpus // claim.machine.gpus, claim.machine.mebibytes // claim.machine.gpus, 1)
        )
        for claim in tasks
    )
    return held / share


def _per_gpu(millicpus: int, mebibytes: int, gpus: int) -> AmountsPerGpu:
    return AmountsPerGpu(millicpus / 1000 / gpus, mebibytes / 1024 / gpus)
