"""What tenants used on average over the window, against the integral of what they held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.tenant_use import GRID_POINTS_PER_WINDOW, TenantUse

WINDOW_S = 1440.0
GREATEST_GPUS = 8.0
Changes = list[tuple[float, float]]
CHANGES = st.lists(st.tuples(st.floats(0.0, 5 * WINDOW_S), st.integers(0, 8).map(float)), min_size=1, max_size=40).map(
    sorted
)


def average(changes: Changes, now: float) -> float:
    """GPUs held on average over the window that ends now, when each change says how many are held from then on."""
    total = 0.0
    for (from_s, held), (until_s, _) in zip(changes, [*changes[1:], (now, 0.0)], strict=True):
        total += held * max(0.0, min(until_s, now) - max(from_s, now - WINDOW_S))
    return total / WINDOW_S


@given(changes=CHANGES, later_s=st.floats(0.0, 2 * WINDOW_S))
def test_never_further_from_the_integral_than_the_grid(changes: Changes, later_s: float) -> None:
    use = TenantUse(2, WINDOW_S, 0.0)
    held = 0.0
    for at_s, gpus in changes:
        use.change(1, gpus - held, 0.0, at_s)
        held = gpus
        assert use.averages(at_s)[0][0] == 0.0, "the other tenant holds nothing"
    now = changes[-1][0] + later_s
    # The window begins within a piece that is taken to be straight; all its bends lie in its first step.
    step_s = WINDOW_S / GRID_POINTS_PER_WINDOW
    used, _ = use.averages(now)
    assert used[1] == pytest.approx(average(changes, now), abs=GREATEST_GPUS * step_s / WINDOW_S + 1e-9)


@given(changes=CHANGES)
def test_never_an_error_before_the_window_has_passed(changes: Changes) -> None:
    early = [(at_s / 5, gpus) for at_s, gpus in changes]
    use = TenantUse(1, WINDOW_S, 0.0)
    held = 0.0
    for at_s, gpus in early:
        use.change(0, gpus - held, 2 * (gpus - held), at_s)
        held = gpus
    gpus_used, cpus_used = use.averages(WINDOW_S)
    assert gpus_used[0] == pytest.approx(average(early, WINDOW_S), abs=1e-6)
    assert cpus_used[0] == pytest.approx(2 * average(early, WINDOW_S), abs=1e-6)
