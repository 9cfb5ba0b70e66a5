"""Is this a receiver of notifications? Whether it may be reached from there only the service knows, when it sends.

No problem says what the URL is: it may have a password in it, and problems are printed and logged.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from domain.notification import Notification, Occasion
from formats.problems import FieldProblem, in_quotes, suggestion

GREATEST_URL_CHARACTERS = 2_048
_SCHEMES = ("http", "https")

_is_host = re.compile(
    r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?", re.IGNORECASE
).fullmatch


def check_notification(notification: Notification, path: str = "notify") -> list[FieldProblem]:
    """Every problem of it, which is at `path`."""
    problems: list[FieldProblem] = []
    found = _url_problem(notification.url)
    if found is not None:
        problems.append(FieldProblem(f"{path}.url", found))
    known = [occasion.value for occasion in Occasion]
    for index, event in enumerate(notification.events[: len(known) + 1]):
        if event not in known:
            described = (
                f"must be one of {', '.join(known)}, not {in_quotes(event)}; {suggestion(event, known, 'event')}"
            )
            problems.append(FieldProblem(f"{path}.events[{index}]", described))
        elif event in notification.events[:index]:
            problems.append(FieldProblem(f"{path}.events[{index}]", f"is {event} again; name it once"))
    return problems


def _url_problem(url: str) -> str | None:
    if not url:
        return "is empty; give the http or https URL that is to be told"
    if len(url) > GREATEST_URL_CHARACTERS:
        return f"has {len(url)} characters; at most {GREATEST_URL_CHARACTERS} are possible"
    if not (url.isascii() and url.isprintable()) or " " in url:
        return "has characters that no URL has, such as blanks; write them as %20"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is no URL: its host or port cannot be read"
    if parts.scheme.lower() not in _SCHEMES:
        return "must begin with http:// or https://"
    if port == 0:
        return "has the port 0, where nobody listens"
    return None if _has_host(parts) else "names no host; write it as https://host/path"


def _has_host(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return len(host) <= 253 and _is_host(host) is not None
    return "%" not in host
