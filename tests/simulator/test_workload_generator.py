from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.fleet import Fleet, Region
from domain.resources import Quota
from domain.table import Table
from formats.fleet_file import read_fleet_file
from formats.tenants_file import read_tenants
from formats.trace import TraceRow, write_trace_rows
from formats.trace_workload import greatest_gpus_per_machine, workload_of_row
from formats.workload_checks import check_workload
from simulator.published_statistics import (
    HIVED_DURATIONS_S,
    HIVED_TENANTS,
    MAST_CPU_DURATIONS_S,
    MAST_GPU_DURATIONS_S,
    MAST_GPUS,
    MAST_MACHINES,
    MAST_PRIORITIES,
    Quantile,
)
from simulator.workload_generator import (
    DAY_S,
    GeneratorSettings,
    Offer,
    Profile,
    generate_workloads,
    offered_gpus,
    offers_of_fleet,
    tenants_of_profile,
    values_at_quantiles,
    with_load,
)
from tests.examples import examples

DEMO = Path(__file__).parents[2] / "examples" / "demo"
SPAN_S = 10 * DAY_S


def generate(seed: int = 1, **changes: object) -> list[TraceRow]:
    given_settings = replace(GeneratorSettings(100_000, SPAN_S), **changes)  # type: ignore[arg-type]  # by the test
    return list(generate_workloads(given_settings, np.random.default_rng(seed)))


@pytest.fixture(scope="module")
def mast() -> list[TraceRow]:
    return generate()


@pytest.fixture(scope="module")
def hived() -> list[TraceRow]:
    return generate(workloads=141_950, profile=Profile.HIVED)


def test_paper_mast_gpus_per_workload(mast: list[TraceRow]) -> None:
    """§5.1: "the 50th, 90th, and 99th percentiles are 16, 64, and 128"; "about 70% of the workloads use GPUs"."""
    gpus = [row.gpus for row in mast if row.gpus]
    assert list(np.percentile(gpus, [50, 90, 99])) == [16, 64, 128]
    assert len(gpus) / len(mast) == pytest.approx(0.70, abs=0.01)
    assert max(gpus) > 10_000
    assert sum(MAST_GPUS.values()) == pytest.approx(1.0)


def test_paper_mast_durations(mast: list[TraceRow]) -> None:
    """§5.1: "20 minutes, 6.7 hours, and 66 hours"; "as for CPU workloads [...] 38 minutes, 7.9 hours, and 38 hours"."""
    gpu_hours = np.percentile([row.duration_s / 3600 for row in mast if row.gpus], [50, 90, 99])
    cpu_hours = np.percentile([row.duration_s / 3600 for row in mast if not row.gpus], [50, 90, 99])
    assert list(gpu_hours) == pytest.approx([20 / 60, 6.7, 66], rel=0.08)
    assert list(cpu_hours) == pytest.approx([38 / 60, 7.9, 38], rel=0.10)


@pytest.mark.parametrize(
    "quantiles",
    [MAST_GPU_DURATIONS_S, MAST_CPU_DURATIONS_S, MAST_MACHINES, *HIVED_DURATIONS_S.values()],
    ids=["MAST GPU", "MAST CPU", "MAST machines", *(f"HiveD {gpus} GPUs" for gpus in HIVED_DURATIONS_S)],
)
def test_published_percentiles_come_out_exactly(quantiles: tuple[Quantile, ...]) -> None:
    evenly = [NormalDist().inv_cdf((place + 0.5) / 100_000) for place in range(100_000)]
    values = values_at_quantiles(quantiles, np.array(evenly))
    found = np.percentile(values, [100 * quantile.share for quantile in quantiles])
    assert list(found) == pytest.approx([quantile.value for quantile in quantiles], rel=1e-3)
    assert np.all(np.diff(values) > 0)


def test_paper_mast_machines_and_priorities(mast: list[TraceRow]) -> None:
    """§5.1: machines "72, 180, and 205"; §4.2: 3 %, 20 %, 16 %, 54 %, 0.2 %, 0.5 %, 0.02 %, the rest without."""
    machines = np.percentile([row.tasks for row in mast if not row.gpus and row.tasks], [50, 90, 99])
    assert list(machines) == pytest.approx([72, 180, 205], rel=0.03)
    priorities = Counter(row.priority for row in mast)
    for priority, per_cent in MAST_PRIORITIES.items():
        share = per_cent / sum(MAST_PRIORITIES.values())
        tolerance = 5 * (share / len(mast)) ** 0.5
        assert priorities[priority] / len(mast) == pytest.approx(share, abs=tolerance), priority
    assert {row.tenant for row in mast} == {t.tenant for t in tenants_of_profile(Profile.MAST, 100)}


def test_paper_hived_table_1(hived: list[TraceRow]) -> None:
    """Table 1: jobs by tenant and GPUs, 141,950 in all; and each tenant's quota."""
    bins = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4, 32: 4, 64: 4}
    found = Counter((row.tenant, bins[row.gpus]) for row in hived)
    published = {(t.tenant, column): jobs for t in HIVED_TENANTS for column, jobs in enumerate(t.jobs)}
    assert sum(published.values()) == 141_950
    for (tenant, column), jobs in published.items():
        assert found[tenant, column] == pytest.approx(jobs, abs=5 * jobs**0.5), (tenant, column)  # type: ignore[index]  # plain name
    quotas = {t.tenant: t.quota for t in tenants_of_profile(Profile.HIVED, 2_232)}
    assert quotas["res-f"] == Quota((("any", 638),))  # type: ignore[index, arg-type]  # plain names
    assert sum(gpus for quota in quotas.values() for _, gpus in quota.gpus) == pytest.approx(2_232, abs=6)


def test_hived_durations_grow_with_the_gpus(hived: list[TraceRow]) -> None:
    medians = {gpus: np.median([row.duration_s for row in hived if row.gpus == gpus]) for gpus in (1, 2, 4, 8)}
    assert [medians[gpus] for gpus in (1, 2, 4, 8)] == pytest.approx([1_330, 1_443, 26_253, 34_075], rel=0.10)


def test_submissions_are_even_or_swing_with_the_day(mast: list[TraceRow]) -> None:
    times = [row.submit_s for row in mast]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] <= SPAN_S
    hours, _ = np.histogram(np.mod(times, DAY_S), 24, (0, DAY_S))
    assert hours == pytest.approx([len(mast) / 24] * 24, rel=0.1)
    swinging = generate(daily_swing=1.0, peak_s=14 * 3600.0)
    hours, _ = np.histogram(np.mod([row.submit_s for row in swinging], DAY_S), 24, (0, DAY_S))
    assert hours[13] + hours[14] == pytest.approx(2 * len(mast) / 12, rel=0.1)
    assert hours[1] + hours[2] < len(mast) * 0.005


def test_sizes_and_durations_scale() -> None:
    whole = generate(workloads=20_000)
    rows = generate(workloads=20_000, size_factor=1 / 8, duration_factor=0.01, greatest_duration_s=600.0)
    assert [row.gpus for row in rows] == [max(1, row.gpus // 8) if row.gpus else 0 for row in whole]
    assert max(row.duration_s for row in rows) == 600.0
    assert np.median([row.duration_s for row in rows if row.gpus]) == pytest.approx(12.0, rel=0.1)


@pytest.mark.parametrize("profile", Profile)
def test_the_demo_fleet_can_host_every_workload(profile: Profile) -> None:
    described, tenants = read_fleet_file(DEMO / "fleet.yaml"), read_tenants(DEMO / "tenants.yaml")
    fleet, tables = described.fleet, described.tables
    fitted = GeneratorSettings.for_fleet(fleet, tenants, 2_000, tables=tables, profile=profile)
    assert fitted.size_factor == (0.25 if profile is Profile.MAST else 0.5)
    rows = list(generate_workloads(fitted, np.random.default_rng(1)))
    names = {tenant.tenant for tenant in tenants}
    assert {row.tenant for row in rows} == names
    assert sum(bool(row.tables) for row in rows) > 500
    assert {row.gpu_model for row in rows} == {"any", "A100", "V100", "T4"}
    for row in rows:
        workload = workload_of_row(row, greatest_gpus_per_machine(fleet))
        known_tables, regions = {t.table for t in tables}, {r.region for r in fleet.regions}
        assert check_workload(workload, names, set(fleet.gpu_models()), known_tables, regions) == ()
        assert any(hosts(fleet, tables, region, row) for region in fleet.regions), row


def hosts(fleet: Fleet, tables: Sequence[Table], region: Region, row: TraceRow) -> bool:
    """Whether the empty region could run it."""
    if any(region.region not in table.regions for table in tables if table.table in row.tables):
        return False
    (job,) = workload_of_row(row, greatest_gpus_per_machine(fleet)).jobs
    asked = job.resources
    if not asked.gpus:
        return job.tasks <= sum(int(m.cpus // 16) for m in region.machines() if not m.gpus)
    fitting = [m for m in region.machines() if asked.gpu_model in {"any", m.gpu_model}]
    return job.tasks <= sum(m.gpus // asked.gpus for m in fitting)


def test_fits_a_load() -> None:
    rows = generate(workloads=1_000)
    fitted = with_load(rows, 200, SPAN_S, 1.2)
    assert offered_gpus(fitted, SPAN_S) == pytest.approx(240.0, rel=0.01)
    assert [row.workload_id for row in fitted] == [row.workload_id for row in rows]
    assert with_load([], 200, SPAN_S, 1.2) == []


def test_a_fleet_without_gpus_has_nothing_to_offer() -> None:
    with pytest.raises(ValueError, match="has no GPUs"):
        offers_of_fleet(Fleet(()))


def test_where_there_are_no_tables_none_is_read() -> None:
    assert all(not row.tables for row in generate(workloads=100, offers=(Offer(),), table_share=1.0))


@given(st.integers(0, 2**32), st.sampled_from(Profile), st.integers(0, 50))
@settings(deadline=None, max_examples=examples(20))
def test_the_same_seed_gives_the_same_bytes(seed: int, profile: Profile, count: int) -> None:
    def text() -> str:
        stream = io.StringIO()
        write_trace_rows(stream, generate(seed, workloads=count, profile=profile, daily_swing=0.5))
        return stream.getvalue()

    assert text() == text()
    assert len(text().splitlines()) == count + 1
