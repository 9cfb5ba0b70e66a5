"""Weighted max-min shares against giving out GPUs one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.cells.fair_share import max_min_shares
from domain.identifiers import TenantId
from tests.examples import examples

TENANTS = [TenantId(name) for name in "abcde"]


def one_by_one(gpus: int, demands: dict[TenantId, int], weights: dict[TenantId, float]) -> dict[TenantId, int]:
    shares = dict.fromkeys(demands, 0)
    for _ in range(gpus):
        hungry = [tenant for tenant in sorted(demands) if shares[tenant] < demands[tenant]]
        if hungry:
            shares[min(hungry, key=lambda tenant: ((shares[tenant] + 1) / weights[tenant], tenant))] += 1
    return shares


@settings(max_examples=examples(300))
@given(
    st.integers(0, 60),
    st.dictionaries(st.sampled_from(TENANTS), st.integers(0, 25), max_size=5),
    st.lists(st.sampled_from([0.1, 0.5, 1.0, 2.0, 3.0, 7.5]), min_size=5, max_size=5),
)
def test_never_gives_anything_else_than_one_by_one(gpus: int, demands: dict[TenantId, int], given: list[float]) -> None:
    weights = dict(zip(TENANTS, given, strict=True))
    assert max_min_shares(gpus, demands, weights) == one_by_one(gpus, demands, weights)


def test_who_wants_less_than_its_share_leaves_it_to_the_others() -> None:
    a, b, c = TENANTS[:3]
    assert max_min_shares(12, {a: 2, b: 100, c: 100}, {b: 4.0}) == {a: 2, b: 8, c: 2}
    assert max_min_shares(0, {a: 1}, {}) == {a: 0}
    assert max_min_shares(5, {}, {}) == {}


def test_numbers_without_a_meaning_are_refused() -> None:
    a = TENANTS[0]
    for gpus, demand, weight in ((-1, 1, 1.0), (1, -1, 1.0), (1, 1, 0.0), (1, 1, float("nan"))):
        with pytest.raises(ValueError, match=r"or more|greater than 0"):
            max_min_shares(gpus, {a: demand}, {a: weight})
