from __future__ import annotations

import gzip
import io
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.events import Event, EventKind, JsonValue
from domain.identifiers import ClusterId, RegionId, TenantId, WorkloadId
from formats.event_log import (
    BadRecord,
    EventLogWriter,
    event_from_record,
    open_event_log,
    parse_record,
    read_records,
)
from formats.problems import FormatError
from tests.formats.format_values import TEXTS

_JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda values: st.lists(values, max_size=2) | st.dictionaries(TEXTS, values, max_size=2),
    max_leaves=4,
)
EVENTS = st.builds(
    Event,
    st.floats(0, 1e10),
    st.sampled_from(EventKind),
    st.none() | TEXTS.map(WorkloadId),
    st.none() | st.integers(1, 1000),
    st.none() | TEXTS.map(TenantId),
    st.none() | st.integers(0, 6),
    st.none() | st.integers(0, 9),
    st.none() | TEXTS.map(RegionId),
    st.none() | TEXTS.map(ClusterId),
    st.dictionaries(TEXTS.map(lambda text: f"x{text}"), _JSON, max_size=3),
)
EVENT = Event(1.5, EventKind.WAITING, WorkloadId("w1"), tenant=TenantId("ads"), details={"reason": "füll"})


@given(EVENTS)
def test_an_event_survives_being_written_and_read(event: Event) -> None:
    stream = io.StringIO()
    EventLogWriter(stream).write(event)
    line = stream.getvalue()
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert event_from_record(parse_record(line)) == event


def write_events(path: Path, events: list[Event]) -> None:
    with open_event_log(path) as log:
        for event in events:
            log.write(event)


@pytest.mark.parametrize("name", ["events.jsonl", "events.jsonl.gz"])
def test_a_log_survives_as_a_file_and_has_the_same_bytes_twice(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    events = [EVENT, Event(2.0, EventKind.MACHINE_DOWN, region=RegionId("east"), details={"machine": "m1"})]
    write_events(path, events)
    first = path.read_bytes()
    assert [event_from_record(record) for record in read_records(path)] == events
    assert [record["event"] for record in read_records(path)] == ["waiting", "machine_down"]
    write_events(path, events)
    assert path.read_bytes() == first
    text = gzip.decompress(first).decode() if name.endswith("gz") else first.decode()
    assert text.splitlines()[0] == '{"t":1.5,"event":"waiting","workload":"w1","tenant":"ads","reason":"füll"}'


def test_never_writes_what_is_not_json() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        EventLogWriter(io.StringIO()).write(Event(math.nan, EventKind.RANKED))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "is not JSON"),
        ('{"t": 1', "is not JSON"),
        ("[1]", r"is not a JSON object: '\[1\]'"),
        ("[" * 100_000, "is not JSON"),
        ('{"t": NaN, "event": "ranked"}', "holds NaN, which is not a number in JSON"),
        ('{"event": "ranked"}', "has no t"),
        ('{"t": true, "event": "ranked"}', "has t True, which is not a finite number"),
        ('{"t": 1e999, "event": "ranked"}', "has t inf, which is not a finite number"),
        ('{"t": 1}', "has event None, which is no kind of event"),
        ('{"t": 1, "event": "start"}', "has event 'start', which is no kind of event; did you mean"),
        ('{"t": 1, "event": "ranked", "workload": 5}', "has workload 5, which is not text"),
        ('{"t": 1, "event": "ranked", "attempt": 1.5}', "has attempt 1.5, which is not a whole number"),
    ],
    ids=range(12),
)
def test_refuses_a_line_that_is_no_event(line: str, message: str) -> None:
    with pytest.raises(BadRecord, match=message):
        event_from_record(parse_record(line))


@pytest.mark.parametrize("line", ["", "[1]", '{"t": NaN, "event": "ranked"}'])
def test_a_log_with_a_line_that_is_no_record_is_refused_by_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(f'{{"t":1,"event":"ranked"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(FormatError, match="line 2: "):
        list(read_records(path))


def test_json_has_one_kind_of_number() -> None:
    assert event_from_record({"t": 1, "event": "ranked", "attempt": 3.0}).attempt == 3
