"""Who is told of what happens to a workload, and how that goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topmast.messages import message_of, strings
from topmast.v1 import workload_pb2


@dataclass(frozen=True, slots=True)
class Notification:
    """`url` gets an HTTP POST (docs/notifications.md) for each of the `events`: "started", "ended", "preempted"; (): all.

    Of what the service answers only scheme and host are left of the URL: the rest may be a secret.
    """

    url: str
    events: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", strings("events", self.events))


@dataclass(frozen=True, slots=True)
class NotificationStatus:
    """How it goes with telling `host`: how many notifications were delivered, wait, and were given up.

    Times are real seconds since the epoch, whatever the clock of the service; None: the oldest that waits has not failed.
    """

    host: str
    delivered: int
    waiting: int
    given_up: int
    failing_since_s: float | None
    next_try_s: float | None
    error: str
    """Why the last one failed; "": none did since one was delivered."""


def notification_to_proto(notification: Notification) -> workload_pb2.Notification:
    return message_of(workload_pb2.Notification, url=notification.url, events=notification.events)


def notification_from_proto(message: workload_pb2.Notification) -> Notification:
    return Notification(message.url, tuple(message.events))


def notification_status_from_proto(message: workload_pb2.NotificationStatus) -> NotificationStatus:
    return NotificationStatus(
        message.host,
        message.delivered,
        message.waiting,
        message.given_up,
        message.failing_since_s or None,
        message.next_try_s or None,
        message.error,
    )
