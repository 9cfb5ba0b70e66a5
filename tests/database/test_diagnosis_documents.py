"""Diagnoses on their way into documents and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.diagnosis import Diagnosis, Numbers, Quantity, Reason
from domain.identifiers import ClusterId, JobName, RegionId, TableId
from services.database.diagnosis_documents import diagnosis_from_document

amounts = st.integers(0, 10**6) | st.floats(0, 1e6)
names = st.text("abc", min_size=1, max_size=3)
diagnoses = st.builds(
    Diagnosis,
    st.sampled_from(Reason),
    st.none() | names.map(RegionId),
    st.none() | names.map(ClusterId),
    st.none() | names.map(JobName),
    st.sampled_from(("", "tables", "jobs[0].gpus")),
    st.dictionaries(st.sampled_from(Quantity), st.tuples(amounts, amounts)).map(
        lambda found: tuple(Numbers(quantity, *found[quantity]) for quantity in Quantity if quantity in found)
    ),
    st.lists(names.map(TableId), max_size=3).map(tuple),
    st.none() | st.floats(0, 1e9),
)


@given(diagnoses)
def test_never_loses_anything_on_the_way_to_json_and_back(diagnosis: Diagnosis) -> None:
    # PostgreSQL keeps the keys of a document in an order of its own.
    record = json.loads(json.dumps(diagnosis.as_json(), sort_keys=True))
    assert diagnosis_from_document(record) == diagnosis


def test_an_unknown_reason_is_an_error() -> None:
    with pytest.raises(ValueError, match="gone_fishing"):
        diagnosis_from_document({"reason": "gone_fishing"})
