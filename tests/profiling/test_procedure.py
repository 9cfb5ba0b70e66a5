"""The procedure of optimistic profiling, on programs that are made up."""

import pytest

from domain.sensitivity import AmountsPerGpu
from services.profiling.measured_run import Measurement, NotMeasured
from services.profiling.procedure import DataSet, Machine, profiled


class Program:
    """Speed grows with CPUs up to a limit."""

    def __init__(self, saturates_at: int) -> None:
        self.saturates_at = saturates_at
        self.asked: list[int] = []

    def measure(self, cpus: int) -> Measurement:
        self.asked.append(cpus)
        return Measurement(float(min(cpus, self.saturates_at)), 3.9)


def ignored(cpus: int, measurement: Measurement) -> None:
    del cpus, measurement


def test_few_runs_say_how_fast_a_job_is_with_any_number_of_cpus() -> None:
    program = Program(saturates_at=9)
    profile = profiled(Machine(24, 62.5), 1, None, program.measure, ignored)
    assert len(program.asked) <= 8
    share = AmountsPerGpu(3.0, 62.5)
    for cpus in range(1, 25):
        assert profile.speed(AmountsPerGpu(cpus, 62.5), share) == pytest.approx(min(cpus, 9) / 3, rel=0.1)
    assert profile.speed(AmountsPerGpu(3.0, 4.0), share) == pytest.approx(1.0), "it reads nothing"


def test_memory_is_worked_out_and_never_measured() -> None:
    program = Program(saturates_at=2)
    data = DataSet(dataset_gib=100.0, gib_per_iteration=1.0, storage_gib_per_s=1.0)
    profile = profiled(Machine(4, 200.0), 1, data, program.measure, ignored)
    # Two iterations a second read 2 GiB/s: with half of the data set cached the 0.5 GiB that each misses come just in time.
    assert profile.throughput_with(AmountsPerGpu(4.0, 100.0)) == pytest.approx(2.0)
    assert profile.throughput_with(AmountsPerGpu(4.0, 4.0)) == pytest.approx(1.0, rel=0.02)
    assert profile.throughput_with(AmountsPerGpu(1.0, 4.0)) == pytest.approx(1.0), (
        "fetching and the pipeline go side by side"
    )
    assert profile.greatest == pytest.approx(2.0)


def test_a_job_that_does_not_fit_into_memory_is_refused() -> None:
    with pytest.raises(NotMeasured, match=r"needs 3\.9375 GiB and there are 2 for it"):
        profiled(Machine(4, 2.0), 1, None, Program(4).measure, ignored)
