"""What a receiver is told: a JSON object (docs/notifications.md)."""

from __future__ import annotations

import json

from domain.events import EventKind, JsonValue
from domain.life_cycle import State
from domain.notification import Occasion, occasion_of
from services.database.notification_store import FoundEvent, NewDelivery, delivery_name

_STATES = {
    EventKind.STARTED: State.RUNNING,
    EventKind.COMPLETED: State.COMPLETED,
    EventKind.FAILED: State.FAILED,
    EventKind.CANCELLED: State.CANCELLED,
}


def delivery_of(found: FoundEvent) -> NewDelivery | None:
    """What is to be sent of an event; None: its receiver does not want to be told of it."""
    event, occasion = found.event, occasion_of(found.event)
    if occasion is None or occasion.value not in found.events or event.workload is None:
        return None
    details = event.details
    # What migrates goes on elsewhere without going through the queue.
    returned = State.DISPATCHED if details.get("successor") is not None else State.PENDING
    body: dict[str, JsonValue] = {
        "delivery": delivery_name(event.workload, found.sequence),
        "event": occasion.value if occasion is Occasion.PREEMPTED else event.event.value,
        "time_s": event.t,
        "workload": event.workload,
        "name": found.name,
        "tenant": event.tenant,
        "labels": dict(found.labels),
        "attempt": event.attempt,
        "region": event.region,
        "state": _STATES.get(event.event, returned).value,
        "reason": details.get("reason", ""),
        "cause": details.get("cause"),
        "exit_code": details.get("exit_code"),
        "progress": details.get("progress"),
    }
    return NewDelivery(event.workload, found.sequence, found.host, json.dumps(body))
