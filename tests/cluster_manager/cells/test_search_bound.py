"""A search for a gang's places gives up after so much work; that makes no owner wait where its private cluster would not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.cells import gang
from tests.cluster_manager.cells.test_sharing_safety import run_random_sequence
from tests.cluster_manager.cells.worlds import Choices, choices
from tests.examples import examples


@settings(max_examples=examples(200))
@given(choices(), st.integers(0, 3_000))
def test_never_waits_for_others_because_a_search_gave_up(choose: Choices, work: int) -> None:
    """Both search the owner's view, which is the same: so both give up, or neither."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gang, "FIRST_TRY", 0)
        patch.setattr(gang, "MOST_WORK", work)
        run_random_sequence(choose)
