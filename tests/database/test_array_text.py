"""Arrays that are written as text arrive as they were, whatever is in them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.database.array_text import number_array, text_array
from tests.conftest_postgres import SessionServer
from tests.examples import examples

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
AWKWARD = st.sampled_from(["", "NULL", "null", '"', "\\", "{}", "a,b", " x ", "\n", '\\"', "{NULL}"])


@pytest.fixture(scope="module")
def connection(postgres_server: SessionServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_server.layout.url("postgres")) as connection:
        yield connection


@settings(max_examples=examples(100), deadline=None)
@given(
    texts=st.lists(st.none() | TEXTS | AWKWARD),
    numbers=st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
    whole=st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)),
    truths=st.lists(st.none() | st.booleans()),
)
def test_values_arrive_as_they_were(
    connection: psycopg.Connection,
    texts: list[str | None],
    numbers: list[float | None],
    whole: list[int | None],
    truths: list[bool | None],
) -> None:
    documents = [{"text": text} for text in texts]
    row = connection.execute(
        "SELECT %s::text[], %s::float8[], %s::int[], %s::bool[], %s::jsonb[]",
        (
            text_array(texts),
            number_array(numbers),
            number_array(whole),
            number_array(truths),
            text_array([json.dumps(document) for document in documents]),
        ),
    ).fetchone()
    assert row == (texts, numbers, whole, truths, documents)
