"""Jobs and machines for tests of tuning: random ones for hypothesis, and checks of what was allocated."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from cluster_manager.tuning.demand import DemandBook, GpuAmounts, most_per_gpu
from cluster_manager.tuning.mechanism import JobAllocation, MachineRoom, PlacedJob, RunnableJob
from domain.sensitivity import SensitivityProfile
from tests.domain.random_profiles import profiles

MACHINE = MachineRoom(8, 24_000, 500 * 1024)
"""Synergy §5.1: 8 GPUs, 24 CPUs, 500 GB."""
SHARE = GpuAmounts(3_000, 64_000)


def job_of(
    book: DemandBook, gpus: int, profile: SensitivityProfile | None, machine: MachineRoom = MACHINE
) -> RunnableJob:
    """A job on such machines."""
    share = GpuAmounts(machine.millicpus // machine.gpus, machine.mebibytes // machine.gpus)
    most = most_per_gpu(gpus, machine.gpus, machine.millicpus, machine.mebibytes)
    return RunnableJob(gpus, book.of(profile, share, most if profile else None))


@st.composite
def rounds(draw: st.DrawFn, most_machines: int = 3, most_jobs: int = 12) -> tuple[list[RunnableJob], list[MachineRoom]]:
    """Equal machines, and jobs of a few models that ask for up to two of them."""
    machine = MachineRoom(draw(st.integers(1, 8)), draw(st.integers(1, 40)) * 1000, draw(st.integers(1, 500)) * 1024)
    models = draw(st.lists(st.none() | profiles(3), min_size=1, max_size=4))
    count = draw(st.integers(1, most_machines))
    book = DemandBook()
    jobs = draw(
        st.lists(
            st.builds(
                lambda gpus, model: job_of(book, gpus, models[model], machine),
                st.integers(1, 2 * machine.gpus),
                st.integers(0, len(models) - 1),
            ),
            max_size=most_jobs,
        )
    )
    return jobs, [machine] * count


def check_round(
    jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom], found: Sequence[JobAllocation | None]
) -> None:
    """All GPUs of a job at once, at its speed, and nothing beyond what machines have."""
    assert len(found) == len(jobs)
    left = [list(machine) for machine in machines]
    for job, allocation in zip(jobs, found, strict=True):
        if allocation is None:
            continue
        assert sum(part.gpus for part in allocation.parts) == job.gpus
        assert len({part.machine for part in allocation.parts}) == len(allocation.parts)
        for part in allocation.parts:
            assert part.gpus > 0
            for resource, each in enumerate((1, *allocation.amounts)):
                left[part.machine][resource] -= part.gpus * each
        options = [job.demand.amounts(option) for option in range(len(job.demand.speeds))]
        assert allocation.amounts in (job.demand.share, *options)
    assert all(amount >= 0 for machine in left for amount in machine)


def placed(jobs: Sequence[RunnableJob], found: Sequence[JobAllocation | None]) -> list[PlacedJob]:
    """The jobs that run, where they are."""
    return [
        PlacedJob(allocation.parts, job.demand, allocation.amounts)
        for job, allocation in zip(jobs, found, strict=True)
        if allocation is not None
    ]
