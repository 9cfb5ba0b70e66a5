"""Rows of a trace for tests of what works on them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from domain.identifiers import RegionId, TenantId, WorkloadId
from formats.trace import TraceRow


def row(
    name: str, submit_s: float, duration_s: float, gpus: int, tenant: str = "t", region: str | None = None
) -> TraceRow:
    return TraceRow(
        WorkloadId(name),
        TenantId(tenant),
        submit_s,
        duration_s,
        gpus,
        region=RegionId(region) if region is not None else None,
    )


def random_rows(count: int, seed: int = 1, tenants: int = 5) -> tuple[TraceRow, ...]:
    """Sorted; sizes are powers of two up to 64."""
    rng = np.random.default_rng(seed)
    submit_s = np.sort(rng.integers(0, 100 * count, count))
    return tuple(
        row(
            f"w{index:06d}",
            float(submit_s[index]),
            float(rng.integers(1, 10_000)),
            int(2 ** rng.integers(0, 7)),
            f"t{rng.integers(tenants)}",
        )
        for index in range(count)
    )


def many_rows(most: int = 12) -> st.SearchStrategy[tuple[TraceRow, ...]]:
    """Rows in order, as a trace file gives them."""
    shapes = st.tuples(st.integers(0, 10**6), st.integers(1, 10**5), st.integers(0, 32), st.sampled_from("abc"))
    return st.lists(shapes, max_size=most).map(
        lambda found: tuple(
            row(f"w{index}", float(submit), float(length), gpus, tenant)
            for index, (submit, length, gpus, tenant) in enumerate(sorted(found))
        )
    )
