import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from global_scheduler.estimates import estimates_from
from global_scheduler.knowledge import EstimateSource

_unknown = st.just(math.nan)
_seconds = st.floats(0.0, 1e6)
_facts = st.tuples(_unknown | _seconds, _seconds, _unknown | _seconds, _unknown | _seconds, _seconds)


@given(st.lists(_facts, max_size=8), st.floats(1.0, 1e6))
def test_never_is_a_worse_source_taken_or_less_than_nothing_left(
    facts: list[tuple[float, float, float, float, float]], assumed_run_s: float
) -> None:
    columns = np.array(facts, np.float64).reshape(len(facts), 5).T
    estimates = estimates_from(*columns, assumed_run_s=assumed_run_s)
    assert (estimates.remaining_s >= 0.0).all()
    for row, (declared_s, kept_s, name_s, tenant_s, run_s) in enumerate(facts):
        best = [
            (EstimateSource.DECLARED, declared_s - kept_s),
            (EstimateSource.NAME_HISTORY, name_s - run_s),
            (EstimateSource.TENANT_HISTORY, tenant_s - run_s),
            (EstimateSource.ASSUMED, assumed_run_s - run_s),
        ]
        source, left_s = next((source, left_s) for source, left_s in best if not math.isnan(left_s))
        assert estimates.source[row] == source
        assert estimates.remaining_s[row] == max(0.0, left_s)
