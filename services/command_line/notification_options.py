"""The options that say whom to tell of what happens to a workload."""

from __future__ import annotations

from typing import Annotated

import typer

from domain.notification import Notification
from formats.notification_checks import check_notification
from services.command_line.empty_option import refuse_empty

NotifyOption = Annotated[
    str,
    typer.Option(
        "--notify",
        metavar="URL",
        help="This URL gets a signed HTTP POST when it starts, ends, or is preempted.",
        show_default=False,
        callback=refuse_empty,
    ),
]
NotifyOnOption = Annotated[
    str,
    typer.Option(
        "--notify-on",
        metavar="EVENTS",
        help="Only of these, with commas: started, ended, preempted.",
        show_default=False,
        callback=refuse_empty,
    ),
]


def notification_of_options(url: str, events: str) -> Notification | None:
    """None: nobody is to be told. What is wrong is told by the option."""
    if not url:
        if events:
            raise typer.BadParameter("nobody is told; say --notify URL as well", param_hint="--notify-on")
        return None
    notification = Notification(url, tuple(event.strip() for event in events.split(",")) if events else ())
    for problem in check_notification(notification):
        option = "--notify" if problem.field == "notify.url" else "--notify-on"
        raise typer.BadParameter(problem.description, param_hint=option)
    return notification
