"""The Gittins index of samples, against its definition written out."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_scheduler.service_distribution import ServiceDistribution

SAMPLES = st.lists(st.integers(1, 60), min_size=1, max_size=40)
ATTAINED = st.lists(st.integers(0, 70), min_size=1, max_size=12)


def defined_index(samples: list[int], attained: int, quantum: int | None) -> Fraction:
    """Pseudocode 1, line 11, for one quantum; None: infinite."""
    more = [service for service in samples if service > attained]
    if not more:
        return Fraction(0)
    left = [service - attained for service in more]
    probability = Fraction(sum(quantum is None or rest <= quantum for rest in left), len(left))
    expected = Fraction(sum(rest if quantum is None else min(rest, quantum) for rest in left), len(left))
    return probability / expected


def defined_best(samples: list[int], attained: int) -> Fraction:
    return max((defined_index(samples, attained, s - attained) for s in samples if s > attained), default=Fraction(0))


@given(SAMPLES, ATTAINED, st.one_of(st.none(), st.integers(1, 80)))
def test_it_is_the_definition(samples: list[int], attained: list[int], quantum: int | None) -> None:
    quanta = np.full(len(attained), math.inf if quantum is None else float(quantum))
    found = ServiceDistribution(samples).index(np.array(attained, np.float64), quanta)
    assert found.tolist() == pytest.approx([float(defined_index(samples, a, quantum)) for a in attained], rel=1e-12)


@given(SAMPLES, ATTAINED)
def test_the_best_one_is_the_supremum(samples: list[int], attained: list[int]) -> None:
    distribution = ServiceDistribution(samples)
    best = distribution.best_index(np.array(attained, np.float64))
    assert best.tolist() == pytest.approx([float(defined_best(samples, a)) for a in attained], rel=1e-12)


@given(SAMPLES, SAMPLES)
def test_samples_that_come_later_never_count_differently(first: list[int], later: list[int]) -> None:
    together = ServiceDistribution([*first, *later])
    grown = ServiceDistribution(first).with_samples(later)
    assert grown.samples_gpu_s.tolist() == together.samples_gpu_s.tolist()
    attained = np.arange(0.0, 70.0)
    quanta = np.full(70, 7.0)
    assert grown.index(attained, quanta).tolist() == together.index(attained, quanta).tolist()


def test_more_than_anything_completed_received_is_index_0() -> None:
    distribution = ServiceDistribution([5.0, 9.0])
    assert distribution.index(np.array([9.0, 9.5]), np.array([math.inf, 1.0])).tolist() == [0.0, 0.0]


def test_no_sample_means_nothing_to_do_later() -> None:
    distribution = ServiceDistribution([4.0])
    assert distribution.with_samples([]) is distribution


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([], "at least one sample"),
        ([0.0], "not 0"),
        ([-3.0, 1.0], "not -3"),
        ([1.0, math.inf], "not inf"),
        ([math.nan], "not nan"),
    ],
    ids=["none", "zero", "negative", "infinite", "no-number"],
)
def test_samples_that_are_none_are_refused(samples: list[float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ServiceDistribution(samples)
