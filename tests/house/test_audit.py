"""A known vulnerability of a dependency is an error; an advisory service that gives no answer is said, and is none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from scripts.audit_dependencies import main


def _advisory(package: str, *mended: str) -> dict[str, object]:
    events = [{"introduced": "0"}, *({"fixed": version} for version in mended)]
    return {
        "id": "PYSEC-0000-1",
        "summary": "It gives everything away.",
        "published": "2026-01-01T00:00:00Z",
        "affected": [
            {
                "package": {"name": package, "ecosystem": "PyPI"},
                "ranges": [{"type": "ECOSYSTEM", "events": events}],
            }
        ],
    }


_KNOWN = {"sample": _advisory("sample", "2.0"), "abandoned": _advisory("abandoned")}


class _Advisories(BaseHTTPRequestHandler):
    """Knows two packages."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = _KNOWN.get(asked["package"]["name"]) if asked["version"].startswith("1") else None
        content = json.dumps({"vulns": [known]} if known else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing of it is to be read."""


@pytest.fixture
def service() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Advisories) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_what_is_known_of_a_pin_fails_and_a_newer_one_passes(
    service: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pins = tmp_path / "pins.txt"
    pins.write_text("other==1.0\nsample==1.5\n")
    assert main(["--pins", str(pins), "--service", service]) == 1
    assert capsys.readouterr().err == "known vulnerability: sample 1.5: PYSEC-0000-1, mended in 2.0\n"
    pins.write_text("other==1.0\nsample==2.0\n")
    assert main(["--pins", str(pins), "--service", service]) == 0


def test_a_service_that_gives_no_answer_is_said_and_fails_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pins = tmp_path / "pins.txt"
    pins.write_text("other==1.0\n")
    assert main(["--pins", str(pins), "--service", "http://127.0.0.1:9/"]) == 0
    assert "dependencies were NOT audited" in capsys.readouterr().err


def test_what_no_version_mends_is_said_and_fails_nothing(
    service: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pins = tmp_path / "pins.txt"
    pins.write_text("abandoned==1.0\n")
    assert main(["--pins", str(pins), "--service", service]) == 0
    assert capsys.readouterr().err == "known vulnerability: abandoned 1.0: PYSEC-0000-1, mended in no version yet\n"
