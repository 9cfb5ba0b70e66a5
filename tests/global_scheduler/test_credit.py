from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from global_scheduler.credit import CreditSettings, FairShare, credits_of, fair_share_terms

AS_PUBLISHED = CreditSettings(
    age_weight_per_s=1.0, age_cap_s=100.0, fairness_weight=10.0, age_resolution_s=0.0, fair_share_resolution=0.0
)
EXACT = replace(AS_PUBLISHED, fair_share=FairShare.RATIO_TO_MEAN)


def terms(
    gpus: list[float],
    cpus: list[float] | None = None,
    weights: list[float] | None = None,
    has_quota: list[bool] | None = None,
    settings: CreditSettings = EXACT,
) -> list[float]:
    count = len(gpus)
    found: list[float] = fair_share_terms(
        np.array(gpus),
        np.array(cpus or [0.0] * count),
        np.array(weights or [1.0] * count),
        np.array(has_quota or [True] * count, dtype=np.bool_),
        settings,
    ).tolist()
    return found


def credits_of_age(submitted_s: NDArray[np.float64], now: float, settings: CreditSettings) -> NDArray[np.float64]:
    """Of workloads of a tenant that used as much as the average."""
    return credits_of(submitted_s, np.zeros(len(submitted_s), np.int32), np.zeros(1), now, settings)


def test_who_used_nothing_has_the_whole_weight_and_the_average_tenant_nothing() -> None:
    assert terms([0.0, 10.0, 20.0]) == [10.0, 0.0, -10.0]


def test_nobody_used_anything() -> None:
    assert terms([0.0, 0.0]) == [10.0, 10.0]
    assert terms([]) == []


def test_a_weight_divides_the_use() -> None:
    assert terms([10.0, 20.0], weights=[1.0, 2.0]) == [0.0, 0.0]


def test_cpus_count_as_a_fraction_of_a_gpu() -> None:
    assert terms([1.0, 0.0], cpus=[0.0, 100.0]) == [0.0, 0.0]


def test_guests_without_quota_and_use_do_not_lower_the_average() -> None:
    assert terms([10.0, 10.0, 0.0], has_quota=[True, True, False]) == [0.0, 0.0, 10.0]
    assert terms([10.0, 10.0, 10.0], has_quota=[True, True, False]) == [0.0, 0.0, 0.0]
    assert terms([15.0, 15.0, 0.0], has_quota=[True, True, True]) == [-5.0, -5.0, 10.0]


def test_the_first_small_use_of_an_idle_tenant_with_quota_is_no_jump() -> None:
    idle, started = terms([10.0, 0.0]), terms([10.0, 1e-9])
    assert started == pytest.approx(idle)


def test_as_published_the_ratio_is_the_share_of_what_all_tenants_used() -> None:
    assert terms([30.0, 10.0, 0.0], settings=AS_PUBLISHED) == pytest.approx([2.5, 7.5, 10.0])
    assert terms([10.0, 10.0], weights=[1.0, 4.0], settings=AS_PUBLISHED) == pytest.approx([2.0, 8.0])
    assert terms([0.0, 0.0], settings=AS_PUBLISHED) == [10.0, 10.0]
    assert terms([], settings=AS_PUBLISHED) == []


def test_guests_change_nothing_of_the_published_share() -> None:
    assert terms([30.0, 10.0, 0.0], has_quota=[False, True, False], settings=AS_PUBLISHED) == pytest.approx(
        [2.5, 7.5, 10.0]
    )


@given(st.lists(st.sampled_from((0.0, 0.5, 3.0, 40.0, 1e6)), max_size=8))
def test_both_forms_never_order_tenants_differently(gpus: list[float]) -> None:
    """The shares are the ratios to the mean, divided by the number of tenants."""
    published, to_mean = terms(gpus, settings=AS_PUBLISHED), terms(gpus)
    assert np.argsort(published, kind="stable").tolist() == np.argsort(to_mean, kind="stable").tolist()
    assert [(10.0 - term) * len(gpus) for term in published] == pytest.approx([10.0 - term for term in to_mean])
    assert all(0.0 <= term <= 10.0 for term in published)


def test_the_ratio_is_rounded_to_its_resolution() -> None:
    coarse = CreditSettings(fairness_weight=1.0, fair_share_resolution=0.25, fair_share=FairShare.RATIO_TO_MEAN)
    assert terms([0.0, 10.0, 10.4, 19.6], settings=coarse) == [1.0, 0.0, 0.0, -1.0]


def test_shares_of_hundreds_of_tenants_are_not_rounded_to_the_same() -> None:
    default = CreditSettings(fairness_weight=1.0)
    found = terms([float(number) for number in range(500)], settings=default)
    assert len(set(found)) > 150


def test_age_grows_up_to_the_cap_and_is_never_negative() -> None:
    assert credits_of_age(np.array([-500.0, 0.0, 40.0, 51.0]), 50.0, EXACT).tolist() == [100.0, 50.0, 10.0, 0.0]


def test_age_counts_whole_quanta() -> None:
    minutes = CreditSettings(age_weight_per_s=1 / 60, age_cap_s=150.0, age_resolution_s=60.0)
    ages = np.array([0.0, 59.9, 60.0, 119.0, 120.0, 1_000.0])
    assert credits_of_age(-ages, 0.0, minutes).tolist() == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("age_weight_per_s", partial(CreditSettings, age_weight_per_s=-1.0)),
        ("age_cap_s", partial(CreditSettings, age_cap_s=float("nan"))),
        ("fairness_weight", partial(CreditSettings, fairness_weight=float("inf"))),
        ("usage_window_s", partial(CreditSettings, usage_window_s=0.0)),
        ("age_resolution_s", partial(CreditSettings, age_resolution_s=-60.0)),
        ("fair_share_resolution", partial(CreditSettings, fair_share_resolution=-0.1)),
        ("gpus_per_cpu", partial(CreditSettings, gpus_per_cpu=-0.1)),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, settings: Callable[[], CreditSettings]) -> None:
    with pytest.raises(ValueError, match=name):
        settings()
