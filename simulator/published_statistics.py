"""What the papers publish about real workloads, as numbers that a generator can draw from.

MAST: OSDI 2024, §4.2 (priorities) and §5.1 (sizes, durations). HiveD: OSDI 2020, Table 1 (jobs by GPUs, quotas).
HiveD publishes no durations; those here are of the public part of the trace that it describes (Philly: Jeon et
al., ATC 2019, CC-BY-4.0), by number of GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple


class Quantile(NamedTuple):
    """A published percentile: `share` of all values are at most `value`."""

    share: float
    value: float


MINUTE_S = 60.0
HOUR_S = 3600.0

MAST_GPU_SHARE = 0.70
"""About 70 % of the workloads use GPUs, the others CPUs."""

MAST_GPUS: MappingProxyType[int, float] = MappingProxyType(
    {
        1: 0.06, 2: 0.05, 4: 0.08, 8: 0.21, 16: 0.24, 32: 0.17, 64: 0.14, 128: 0.043, 256: 0.004, 512: 0.0015,
        1024: 0.0008, 2048: 0.0004, 4096: 0.0002, 8192: 0.00007, 16384: 0.00003,
    }
)  # fmt: skip
"""Share of the GPU workloads by GPUs. Published are the percentiles (P50 16, P90 64, P99 128) and that the largest
uses tens of thousands; the powers of two and the shares between the percentiles are ours."""

MAST_GPU_DURATIONS_S = (
    Quantile(0.50, 20 * MINUTE_S),
    Quantile(0.90, 6.7 * HOUR_S),
    Quantile(0.99, 66 * HOUR_S),
)
"""Execution time of GPU workloads until the next preemption or the end."""

MAST_CPU_DURATIONS_S = (
    Quantile(0.50, 38 * MINUTE_S),
    Quantile(0.90, 7.9 * HOUR_S),
    Quantile(0.99, 38 * HOUR_S),
)

MAST_MACHINES = (Quantile(0.50, 72.0), Quantile(0.90, 180.0), Quantile(0.99, 205.0))
"""Machines per workload, of all workloads; here it sizes the CPU workloads, whose own figures are not published."""

MAST_TABLE_READERS = (Quantile(0.50, 3.0), Quantile(0.90, 17.0), Quantile(0.99, 45.0))
"""Distinct workloads that read a partition of a table (§3, Figure 3)."""

MAST_TABLE_BYTES = (Quantile(0.50, 565e6), Quantile(0.90, 103e9), Quantile(0.99, 7.5e12))
"""What is copied when a table is replicated (§3.4); 565 MB, 103 GB and 7.5 TB are taken as decimal."""

MAST_PRIORITIES: MappingProxyType[int | None, float] = MappingProxyType(
    {0: 3.0, 1: 20.0, 2: 16.0, 3: 54.0, 4: 0.2, 5: 0.5, 6: 0.02, None: 6.0}
)
"""Per cent of the workloads by priority; None: not specified, and treated as the lowest. They add up to 99.72."""


@dataclass(frozen=True, slots=True)
class HivedTenant:
    """A row of Table 1: jobs by GPUs (1, 2, 4, 8, 16 or more), and the share of all GPUs that is its quota."""

    tenant: str
    jobs: tuple[int, int, int, int, int]
    quota_share: float


HIVED_TENANTS = (
    HivedTenant("res-a", (429, 14, 260, 625, 40), 0.0037),
    HivedTenant("res-b", (18_319, 1_593, 931, 148, 238), 0.0073),
    HivedTenant("res-c", (3_285, 161, 716, 185, 0), 0.0073),
    HivedTenant("res-d", (1_754, 0, 0, 0, 0), 0.0147),
    HivedTenant("res-e", (2_682, 110, 3_005, 0, 0), 0.0183),
    HivedTenant("res-f", (8_181, 88, 618, 1_337, 559), 0.2857),
    HivedTenant("prod-a", (227, 54, 23, 1_132, 138), 0.0879),
    HivedTenant("prod-b", (16_446, 67, 605, 1_344, 22), 0.1062),
    HivedTenant("prod-c", (4_692, 301, 1_905, 4_415, 1_206), 0.1136),
    HivedTenant("prod-d", (781, 6, 545, 650, 95), 0.1575),
    HivedTenant("prod-e", (58_407, 532, 2_118, 959, 2), 0.1978),
)
HIVED_GPU_BINS = (1, 2, 4, 8, 16)

HIVED_LARGE_GPUS: MappingProxyType[int, float] = MappingProxyType({16: 0.826, 32: 0.171, 64: 0.003})
"""How Table 1's column of 16 or more GPUs splits: as the jobs of 16, 32 and 64 GPUs in the public Philly trace."""

HIVED_DURATIONS_S: MappingProxyType[int, tuple[Quantile, ...]] = MappingProxyType(
    {
        1: (Quantile(0.10, 63), Quantile(0.50, 1_330), Quantile(0.90, 11_239), Quantile(0.99, 347_699)),
        2: (Quantile(0.10, 62), Quantile(0.50, 1_443), Quantile(0.90, 23_112), Quantile(0.99, 591_972)),
        4: (Quantile(0.10, 175), Quantile(0.50, 26_253), Quantile(0.90, 221_766), Quantile(0.99, 1_339_690)),
        8: (Quantile(0.10, 510), Quantile(0.50, 34_075), Quantile(0.90, 409_785), Quantile(0.99, 1_780_406)),
        16: (Quantile(0.10, 340), Quantile(0.50, 28_456), Quantile(0.90, 341_346), Quantile(0.99, 817_229)),
    }
)
"""By bin. For 2 GPUs those of all jobs: the public 2-GPU jobs are mostly bursts of seconds by one user."""
