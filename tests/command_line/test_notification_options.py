"""--notify and --notify-on: whom to tell is refused by the option's name, or sent; how it goes is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.command_line.workload_view import notification_words
from tests.client.loopback_server import LoopbackServer
from tests.command_line.conftest import Topmast
from topmast import NotificationStatus

RUN = ("run", "--tenant", "vision", "--gpus", "1", "--no-workdir")
WORKLOAD = "name: a\ntenant: vision\njobs: [{name: main, resources: {gpus: 1}, command: [train]}]\n"


@pytest.mark.parametrize(
    ("options", "option", "words"),
    [
        (("--notify", "ftp://user:hunter2@example.org"), "--notify", "must begin with http:// or https://"),
        (("--notify", "https://"), "--notify", "names no host"),
        (("--notify", "https://example.org", "--notify-on", "begun"), "--notify-on", "must be one of started"),
        (("--notify-on", "ended"), "--notify-on", "say --notify URL as well"),
        (("--notify", ""), "--notify", "is empty"),
        (("--array", ""), "--array", "is empty"),
    ],
    ids=["scheme", "host", "event", "nobody", "empty", "empty-array"],
)
def test_what_is_wrong_is_told_by_its_option(
    server: LoopbackServer, topmast: Topmast, tmp_path: Path, options: tuple[str, ...], option: str, words: str
) -> None:
    file = tmp_path / "workload.yaml"
    file.write_text(WORKLOAD)
    for command in ((*RUN, *options, "--", "train"), ("submit", "-f", str(file), "--no-workdir", *options)):
        refused = topmast(*command)
        assert refused.exit_code != 0
        told = " ".join(refused.stderr.split())
        assert option in told
        assert words in told
        assert "hunter2" not in told
    assert not server.topmast.workloads


def test_who_is_to_be_told_is_submitted(server: LoopbackServer, topmast: Topmast, tmp_path: Path) -> None:
    file = tmp_path / "workload.yaml"
    file.write_text(WORKLOAD + "notify: https://example.org/of-the-file\n")
    options = ("--notify", "https://example.org/a", "--notify-on", "started, ended")
    assert topmast(*RUN, *options, "--", "train").exit_code == 0
    assert topmast("submit", "-f", str(file), "--no-workdir").exit_code == 0
    assert topmast("submit", "-f", str(file), "--no-workdir", *options).exit_code == 0
    sent = [stored.specification.notify for _, stored in sorted(server.topmast.workloads.items())]
    assert [(one.url, list(one.events)) for one in sent] == [
        ("https://example.org/a", ["started", "ended"]),
        ("https://example.org/of-the-file", []),
        ("https://example.org/a", ["started", "ended"]),
    ]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (NotificationStatus("x", 0, 0, 0, None, None, ""), "to x: 0 delivered"),
        (NotificationStatus("x", 2, 1, 0, None, None, ""), "to x: 2 delivered, 1 to be sent"),
        (NotificationStatus("x", 1, 0, 1, None, None, "answered 500"), "to x: 1 delivered, 1 given up (answered 500)"),
    ],
    ids=["nothing yet", "more to come", "given up"],
)
def test_how_it_goes_is_told(status: NotificationStatus, words: str) -> None:
    assert notification_words(status) == words


def test_a_failing_receiver_is_told_since_when_and_until_when() -> None:
    told = notification_words(NotificationStatus("x", 0, 2, 0, 1_790_000_000.0, 1_790_000_060.0, "answered 503"))
    assert told.startswith("to x: failing since ")
    assert "(answered 503), next try at " in told
