"""What is told of, when it is sent again, who may be told, and with what it is signed."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import pytest

from domain.events import Event, EventKind
from domain.identifiers import WorkloadId
from domain.notification import Notification, host_of, occasion_of, shown_url
from formats.notification_checks import check_notification
from formats.problems import FormatError
from formats.workload_file import parse_workloads, workload_document, workload_from_document
from services.configuration import load_configuration
from services.notifications.retrying import next_try_real_s
from services.notifications.settings import NotificationSettings
from services.notifications.signing import SecretUnusable, read_secret, secret_at, signature
from services.notifications.target_rules import target_rules

DOCUMENT = Path(__file__).parents[2] / "docs" / "notifications.md"
SECRET = b"0123456789abcdef"

YAML = """
name: train
tenant: vision
jobs: [{name: main, resources: {gpus: 1}, command: [train]}]
notify: NOTIFY
"""


def event(kind: EventKind, **details: Any) -> Event:
    return Event(1.0, kind, WorkloadId("w-1"), 1, details=details)


@pytest.mark.parametrize(
    ("happened", "occasion"),
    [
        (event(EventKind.STARTED), "started"),
        (event(EventKind.COMPLETED), "ended"),
        (event(EventKind.CANCELLED), "ended"),
        (event(EventKind.FAILED, final=True), "ended"),
        (event(EventKind.FAILED, final=False), None),
        (event(EventKind.EVICTED, cause="preempted"), "preempted"),
        (event(EventKind.EVICTED, cause="machine_lost"), "preempted"),
        (event(EventKind.EVICTED, cause="cancelled"), None),
        (event(EventKind.EVICTED, cause="time_limit"), None),
        (event(EventKind.SUBMITTED), None),
    ],
    ids=str,
)
def test_what_users_are_told_of(happened: Event, occasion: str | None) -> None:
    assert occasion_of(happened) == occasion


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "is empty"),
        ("ftp://example.org", "must begin with http"),
        ("example.org/hook", "must begin with http"),
        ("https://", "names no host"),
        ("https:///hook", "names no host"),
        ("https://exa mple.org", "characters that no URL has"),
        ("https://example.org/\0", "characters that no URL has"),
        ("https://user:hunter2@example.org:99999/", "cannot be read"),
        ("https://user:hunter2@[::1/", "cannot be read"),
        ("https://user:hunter2@-/", "names no host"),
        ("https://example.org/" + "a" * 3_000, "at most 2048"),
    ],
)
def test_what_is_no_url_is_refused_and_not_repeated(url: str, words: str) -> None:
    (problem,) = check_notification(Notification(url))
    assert problem.field == "notify.url"
    assert words in problem.description
    assert "hunter2" not in problem.description


def test_events_are_known_and_named_once() -> None:
    problems = check_notification(Notification("https://example.org", ("start", "ended", "ended")))
    assert [problem.field for problem in problems] == ["notify.events[0]", "notify.events[2]"]
    assert "started" in problems[0].description


@pytest.mark.parametrize(
    "url", ["http://example.org", "https://u:p@example.org:8443/a?b=c", "http://[::1]:80/", "HTTP://x"]
)
def test_urls_are_taken(url: str) -> None:
    assert check_notification(Notification(url)) == []


def test_what_may_be_shown_of_a_url() -> None:
    url = "https://user:hunter2@Hooks.example.org:8443/secret?token=secret"
    assert (host_of(url), shown_url(url)) == ("hooks.example.org:8443", "https://hooks.example.org:8443/...")


def test_workload_files_say_whom_to_tell() -> None:
    (plain,) = parse_workloads(YAML.replace("NOTIFY", "https://example.org/a"))
    assert plain.notify == Notification("https://example.org/a")
    (chosen,) = parse_workloads(YAML.replace("NOTIFY", "{url: 'https://example.org/a', events: [ended]}"))
    assert chosen.notify == Notification("https://example.org/a", ("ended",))
    assert workload_from_document(workload_document(chosen)) == chosen
    with pytest.raises(FormatError, match=r"notify\.url: must begin with http"):
        parse_workloads(YAML.replace("NOTIFY", "mailto:a@example.org"))


def test_waits_double_up_to_an_hour_and_end_after_a_day() -> None:
    waits: list[float] = []
    now_real_s = 0.0
    while True:
        again_real_s = next_try_real_s(len(waits) + 1, 0.0, now_real_s, 1.0, 86_400.0)
        if again_real_s is None:
            break
        waits.append(again_real_s - now_real_s)
        now_real_s = again_real_s
    assert waits[:4] == [5.0, 10.0, 20.0, 40.0]
    assert max(waits) == 3_600.0
    assert 86_400.0 - 3_600.0 < now_real_s <= 86_400.0
    assert next_try_real_s(1, 0.0, 0.0, 0.0, 86_400.0) == 2.5


@pytest.mark.parametrize(
    ("settings", "listens_on", "address", "refused"),
    [
        (NotificationSettings(), "10.0.0.1:5", "93.184.216.34", False),
        (NotificationSettings(), "10.0.0.1:5", "10.1.2.3", False),
        (NotificationSettings(), "10.0.0.1:5", "169.254.169.254", True),
        (NotificationSettings(), "127.0.0.1:5", "169.254.169.254", True),
        (NotificationSettings(), "127.0.0.1:5", "::ffff:169.254.169.254", True),
        (NotificationSettings(), "127.0.0.1:5", "fe80::1%eth0", True),
        (NotificationSettings(), "127.0.0.1:5", "224.0.0.1", True),
        (NotificationSettings(), "127.0.0.1:5", "127.0.0.1", False),
        (NotificationSettings(), "[::1]:5", "::1", False),
        (NotificationSettings(), "10.0.0.1:5", "127.0.0.1", True),
        (NotificationSettings(), "0.0.0.0:5", "::ffff:127.0.0.1", True),
        (NotificationSettings(), "10.0.0.1:5", "::", True),
        (NotificationSettings(loopback=True), "10.0.0.1:5", "127.0.0.1", False),
        (NotificationSettings(loopback=False), "127.0.0.1:5", "127.0.0.1", True),
        (NotificationSettings(allowed_networks=["10.0.0.0/8"]), "10.0.0.1:5", "10.1.2.3", False),
        (NotificationSettings(allowed_networks=["10.0.0.0/8"]), "10.0.0.1:5", "93.184.216.34", True),
        (NotificationSettings(forbidden_networks=["10.0.0.0/8"]), "10.0.0.1:5", "10.1.2.3", True),
    ],
)
def test_who_may_be_told(settings: NotificationSettings, listens_on: str, address: str, refused: bool) -> None:
    assert (target_rules(settings, listens_on).refusal(address) is not None) is refused


def test_receivers_check_signatures_as_the_document_says() -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    known: dict[str, Any] = {}
    exec(snippet, known)  # noqa: S102 - what users are told to type
    is_from_topmast, now_real_s = known["is_from_topmast"], known["time"].time()
    signed = signature(SECRET, b"{}", now_real_s)
    assert is_from_topmast(SECRET, signed, b"{}")
    assert not is_from_topmast(b"another", signed, b"{}")
    assert not is_from_topmast(SECRET, signed, b"{} ")
    assert not is_from_topmast(SECRET, signature(SECRET, b"{}", now_real_s - 3_600.0), b"{}")


def test_a_secret_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "home" / "notification-secret"
    made = secret_at(path)
    assert len(made) >= 32
    assert secret_at(path) == read_secret(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_a_secret_that_is_none_is_refused_with_its_file(tmp_path: Path) -> None:
    short = tmp_path / "secret"
    short.write_text("short\n")
    file = tmp_path / "scheduler.yaml"
    for path in (short, tmp_path / "missing"):
        with pytest.raises(SecretUnusable, match=str(path)):
            read_secret(path)
        file.write_text(f"notifications: {{secret_file: {path.name}}}\n")
        with pytest.raises(FormatError, match=r"notifications\.secret_file"):
            load_configuration(file)
    short.write_bytes(SECRET + b"\n")
    file.write_text("notifications: {secret_file: secret}\n")
    assert load_configuration(file).notifications.secret_file == str(short)
    file.write_text("notifications: {allowed_networks: [nowhere]}\n")
    with pytest.raises(FormatError, match=r"notifications\.allowed_networks"):
        load_configuration(file)
