"""A real browser without a window: what becomes of a page in it, and what it asks the network for."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_VIRTUAL_TIME_MS = 30_000
"""How long the page's own clock runs; scripts are waited for, whatever that takes."""


@dataclass(frozen=True)
class Seen:
    """A page when its scripts are done."""

    document: str
    requests: tuple[str, ...]
    """Addresses that the page asked for, other than files."""


@dataclass(frozen=True)
class Browser:
    """Chromium, with a new profile for each page."""

    program: str
    folder: Path

    def look_at(self, page: Path, *, width: int = 1400, options: Sequence[str] = ()) -> Seen:
        """Opens the page. Names are never looked up, so nothing can leave the machine, but it is seen to be tried."""
        profile, log = self.folder / "profile", self.folder / "net.json"
        shutil.rmtree(profile, ignore_errors=True)
        finished = subprocess.run(
            [
                self.program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}",
                f"--log-net-log={log}", f"--window-size={width},1000", f"--virtual-time-budget={_VIRTUAL_TIME_MS}",
                *options, "--dump-dom", page.as_uri(),
            ],
            capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        assert finished.returncode == 0, finished.stderr
        return Seen(finished.stdout, _requests_of_pages(log))


def _requests_of_pages(log: Path) -> tuple[str, ...]:
    """Without those that the browser makes for itself, which have no page as their origin."""
    events = json.loads(log.read_text(encoding="utf-8"))["events"]
    parameters = [event.get("params", {}) for event in events]
    return tuple(
        asked["url"]
        for asked in parameters
        if "method" in asked and asked.get("initiator") != "not an origin" and not asked["url"].startswith("file:")
    )


def browser_in(folder: Path) -> Browser:
    """The browser of this machine; skips the test where there is none."""
    program = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("there is no chromium, and .ci/run could not install it: apt-get install chromium")
    return Browser(program, folder)
