"""Run times that are estimated wrongly."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.inputs.wrong_estimates import estimate_factors


def test_so_many_are_wrong_within_the_margin() -> None:
    factors = estimate_factors(1000, 0.6, np.random.default_rng(1))
    assert np.count_nonzero(factors != 1.0) == 600
    assert 0.75 <= factors.min() < 0.8
    assert 1.2 < factors.max() <= 1.25
    assert factors[factors != 1.0].mean() == pytest.approx(1.0, abs=0.02)


def test_none_wrong_and_the_same_seed() -> None:
    assert estimate_factors(5, 0.0, np.random.default_rng(1)).tolist() == [1.0] * 5
    again = [estimate_factors(50, 0.4, np.random.default_rng(7), 0.5).tolist() for _ in range(2)]
    assert again[0] == again[1]


def test_what_is_no_share_or_margin_is_refused() -> None:
    with pytest.raises(ValueError, match="the share of wrong estimates is from 0 to 1, not"):
        estimate_factors(5, 1.5, np.random.default_rng(1))
    with pytest.raises(ValueError, match="the margin of wrong estimates is from 0 to below 1, not"):
        estimate_factors(5, 0.5, np.random.default_rng(1), 1.0)
