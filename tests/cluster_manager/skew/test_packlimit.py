"""PACKLIMIT against a search of all limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.skew.packlimit import (
    DEFAULT_PACKLIMIT,
    SENSITIVE_MODELS,
    SKEWS_OF_MODELS,
    WORTHWHILE_SLOWDOWN,
    PackLimit,
    fit_packlimit,
)

jobs = st.lists(st.tuples(st.sampled_from([0.0, 0.05, 0.2, 0.3, 0.5, 0.7, 1.0]), st.floats(0.5, 3.0)), max_size=30)


def fitted(samples: list[tuple[float, float]]) -> PackLimit:
    return fit_packlimit(np.array([skew for skew, _ in samples]), np.array([slowdown for _, slowdown in samples]))


def labelled(samples: list[tuple[float, float]]) -> list[tuple[float, bool]]:
    """What the limit is to separate: the models of the paper, and the jobs."""
    models = [(skew, model in SENSITIVE_MODELS) for model, skew in SKEWS_OF_MODELS.items()]
    return models + [(skew, slowdown > WORTHWHILE_SLOWDOWN) for skew, slowdown in samples]


def misplaced(limit: float, samples: list[tuple[float, bool]]) -> int:
    return sum((skew > limit) != pays for skew, pays in samples)


def test_without_history_it_lies_in_the_middle_of_the_gap_between_the_models_of_the_paper() -> None:
    assert fitted([]) == PackLimit(DEFAULT_PACKLIMIT, learnt_from=0, misplaced=0)
    assert pytest.approx((0.1461 + 0.6104) / 2) == DEFAULT_PACKLIMIT


@given(jobs)
def test_never_misplaces_more_samples_than_another_limit_would(samples: list[tuple[float, float]]) -> None:
    known = labelled(samples)
    found = fitted(samples)
    assert 0 <= found.limit <= 1
    assert misplaced(found.limit, known) == found.misplaced
    assert found.misplaced == min(misplaced(limit, known) for limit in (0.0, *np.arange(0.0005, 1.0, 0.001)))
    assert found.learnt_from == len(samples)


def test_jobs_of_middling_skew_that_are_slower_when_spread_lower_it() -> None:
    found = fitted([(0.3, 1.4), (0.25, 1.2), (0.2, 1.0)])
    assert 0.2 < found.limit < 0.25
    assert (found.learnt_from, found.misplaced) == (3, 0)


def test_one_odd_job_does_not_move_it_past_the_others() -> None:
    odd = fitted([(0.08, 2.0)])
    assert (odd.limit, odd.misplaced) == (DEFAULT_PACKLIMIT, 1)


@pytest.mark.parametrize(
    ("skews", "slowdowns"), [([0.1], []), ([1.1], [1.0]), ([-0.1], [1.0]), ([0.5], [0.0]), ([0.5], [np.inf])]
)
def test_refuses_what_is_no_history(skews: list[float], slowdowns: list[float]) -> None:
    with pytest.raises(ValueError, match=r"skews|slowdowns"):
        fit_packlimit(np.array(skews), np.array(slowdowns))
