"""What requests may ask: every field that a client can set is checked here, before anything else sees it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from domain.events import EventKind
from domain.identifiers import IDENTIFIER_PATTERN, RegionId, TenantId, WorkloadId
from domain.life_cycle import State
from domain.workload_array import name_of_written
from formats.problems import FieldProblem, in_quotes, suggestion
from services.database.event_store import EventFilter
from services.database.label_store import LabelCondition
from services.database.workload_reader import StoredWorkloadFilter
from services.grpc_errors import InvalidArgument
from services.wire.malformed_message import MalformedMessage
from services.wire.workloads import state_from_proto
from topmast.v1 import global_scheduler_pb2 as messages

GREATEST_PAGE = 1_000
GREATEST_TEXT_CHARACTERS = 1_024
GREATEST_STATES = 64
GREATEST_KINDS = 64
GREATEST_LABEL_CONDITIONS = 16

_is_name = re.compile(IDENTIFIER_PATTERN).fullmatch


class Checks:
    """Collects the problems of one request; `raise_problems` reports all of them at once."""

    def __init__(self) -> None:
        self._problems: list[FieldProblem] = []

    def add(self, field: str, description: str) -> None:
        self._problems.append(FieldProblem(field, description))

    def raise_problems(self) -> None:
        """Raises InvalidArgument when there are any."""
        if self._problems:
            raise InvalidArgument(self._problems)

    def name(self, field: str, value: str) -> str | None:
        """A name, that of the element for ARRAY[7], or None when the field is empty."""
        if not value:
            return None
        value = name_of_written(value)
        if not _is_name(value):
            self.add(field, f"must be a name: 1 to 128 letters, digits or . _ : / -, not {in_quotes(value)}")
            return None
        return value

    def text(self, field: str, value: str) -> str:
        """Free text that a database can hold."""
        if len(value) > GREATEST_TEXT_CHARACTERS:
            self.add(field, f"has {len(value)} characters; at most {GREATEST_TEXT_CHARACTERS} are possible")
        elif "\0" in value:
            self.add(field, "has a NUL character; remove it")
        return value

    def count(self, field: str, value: int, default: int, greatest: int) -> int:
        """0 means the default."""
        if not 0 <= value <= greatest:
            self.add(field, f"must be from 0 (which means {default}) to {greatest}, not {value}")
        return value or default

    def time(self, field: str, value: float) -> float | None:
        """0 means no bound."""
        if not math.isfinite(value):
            self.add(field, f"must be a finite number of seconds, not {value}")
        return value or None

    def states(self, field: str, values: Sequence[int]) -> tuple[State, ...]:
        if len(values) > GREATEST_STATES:
            self.add(field, f"are {len(values)}; at most {GREATEST_STATES} are possible")
            return ()
        states = []
        for index, value in enumerate(values):
            try:
                states.append(state_from_proto(value))
            except MalformedMessage as malformed:
                self.add(f"{field}[{index}]", malformed.problems[0].description)
        return tuple(states)

    def labels(self, field: str, values: Sequence[messages.LabelCondition]) -> tuple[LabelCondition, ...]:
        if len(values) > GREATEST_LABEL_CONDITIONS:
            self.add(field, f"are {len(values)}; at most {GREATEST_LABEL_CONDITIONS} are possible")
            return ()
        conditions = []
        for index, one in enumerate(values):
            if not self.name(f"{field}[{index}].key", one.key) and not one.key:
                self.add(f"{field}[{index}].key", "is empty; name a label")
            self.text(f"{field}[{index}].value", one.value)
            conditions.append(LabelCondition(one.key, one.value if one.HasField("value") else None, one.excludes))
        return tuple(conditions)

    def kinds(self, field: str, values: Sequence[str]) -> tuple[EventKind, ...]:
        if len(values) > GREATEST_KINDS:
            self.add(field, f"are {len(values)}; at most {GREATEST_KINDS} are possible")
            return ()
        kinds = []
        for index, value in enumerate(values):
            try:
                kinds.append(EventKind(value))
            except ValueError:
                known = suggestion(value, [kind.value for kind in EventKind], "kind of event")
                self.add(f"{field}[{index}]", f"{in_quotes(value)} is no kind of event; {known}")
        return tuple(kinds)


def workload_named(value: str) -> WorkloadId:
    """The workload that a request is about; raises InvalidArgument unless it is a name."""
    checks = Checks()
    name = checks.name("workload", value)
    if not value:
        checks.add("workload", "is empty; name a workload")
    checks.raise_problems()
    return WorkloadId(name or "")


def several_workloads(values: Sequence[str]) -> tuple[WorkloadId, ...]:
    """The workloads that a request is about; raises InvalidArgument for none, too many, or one twice."""
    checks = Checks()
    if not 1 <= len(values) <= GREATEST_PAGE:
        checks.add("workloads", f"are {len(values)}; from 1 to {GREATEST_PAGE} are possible at a time")
        checks.raise_problems()
    seen: set[str] = set()
    for index, value in enumerate(map(name_of_written, values)):
        if not checks.name(f"workloads[{index}]", value) and not value:
            checks.add(f"workloads[{index}]", "is empty; name a workload")
        if value in seen:
            checks.add(f"workloads[{index}]", f"is {in_quotes(value)} again; name it once")
        seen.add(value)
    checks.raise_problems()
    return tuple(WorkloadId(name_of_written(value)) for value in values)


def list_filter(request: messages.ListWorkloadsRequest) -> tuple[StoredWorkloadFilter, int]:
    """Which workloads, and how many at once; raises InvalidArgument."""
    checks = Checks()
    tenant = checks.name("tenant", request.tenant)
    region = checks.name("region", request.region)
    array = checks.name("array", request.array)
    expanded = request.expand_arrays or array is not None or region is not None or bool(request.states)
    wanted = StoredWorkloadFilter(
        tenant=None if tenant is None else TenantId(tenant),
        states=checks.states("states", request.states),
        region=None if region is None else RegionId(region),
        name_contains=checks.text("name_contains", request.name_contains),
        submitted_after_s=checks.time("submitted_after_s", request.submitted_after_s),
        submitted_before_s=checks.time("submitted_before_s", request.submitted_before_s),
        labels=checks.labels("labels", request.labels),
        array=None if array is None else WorkloadId(array),
        first_elements=not expanded,
    )
    checks.text("page_token", request.page_token)
    page_size = checks.count("page_size", request.page_size, 100, GREATEST_PAGE)
    checks.raise_problems()
    return wanted, page_size


def event_filter(request: messages.WatchEventsRequest) -> EventFilter:
    """Which events; raises InvalidArgument."""
    checks = Checks()
    workload = checks.name("workload", request.workload)
    tenant = checks.name("tenant", request.tenant)
    kinds, labels = checks.kinds("events", request.events), checks.labels("labels", request.labels)
    if request.after_sequence < 0:
        checks.add("after_sequence", f"must be 0 (the beginning of the log) or more, not {request.after_sequence}")
    checks.raise_problems()
    return EventFilter(
        None if workload is None else WorkloadId(workload), None if tenant is None else TenantId(tenant), kinds, labels
    )


def queue_selection(request: messages.GetQueueRequest) -> tuple[TenantId | None, int]:
    """Whose entries, and how many at most; raises InvalidArgument."""
    checks = Checks()
    tenant = checks.name("tenant", request.tenant)
    limit = checks.count("limit", request.limit, 50, GREATEST_PAGE)
    checks.raise_problems()
    return None if tenant is None else TenantId(tenant), limit


def cancellation_reason(request: messages.CancelWorkloadRequest) -> str:
    """Raises InvalidArgument when it cannot be stored."""
    checks = Checks()
    reason = checks.text("reason", request.reason)
    checks.raise_problems()
    return reason or "cancelled by the user"
