"""Asks an advisory service (OSV) what is known of the pinned dependencies: `python -m scripts.audit_dependencies`.

A known vulnerability fails that a newer version mends; one that no version mends is said, for nobody could do anything about it. Where the service cannot be asked, that is said and nothing fails: a machine without a network checks the
rest all the same, and one with a network audits the same pins.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PINS = Path(__file__).resolve().parents[1] / "constraints.txt"
_TIMEOUT_S = 10
_NOT_ASKED = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "ServiceError", "ProxyError", "SSLError")
"""What pip-audit ends with when its service gives no answer."""


@dataclass(frozen=True, slots=True)
class Audit:
    """`audited`: of so many dependencies it was asked what is known. What is, a line each: `mendable` by a newer version, or not yet."""

    audited: int
    skipped: int
    mendable: tuple[str, ...]
    unmended: tuple[str, ...]


def audit_of(document: dict[str, Any]) -> Audit:
    """What pip-audit wrote as JSON."""
    dependencies = document["dependencies"]
    skipped = sum("skip_reason" in one for one in dependencies)
    mendable, unmended = [], []
    for one in dependencies:
        for vulnerability in one.get("vulns", ()):
            name = f"{one['name']} {one['version']}: {vulnerability['id']}"
            if vulnerability["fix_versions"]:
                mendable.append(f"{name}, mended in {', '.join(vulnerability['fix_versions'])}")
            else:
                unmended.append(f"{name}, mended in no version yet")
    return Audit(len(dependencies) - skipped, skipped, tuple(sorted(mendable)), tuple(sorted(unmended)))


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 for a known vulnerability that can be mended, and where pip-audit cannot be run at all."""
    parser = argparse.ArgumentParser(prog="python -m scripts.audit_dependencies", description=__doc__)
    parser.add_argument("--pins", type=Path, default=_PINS, help="the file of pinned versions")
    parser.add_argument("--service", default="", help="the URL of an OSV service, instead of the public one")
    said = parser.parse_args(arguments)
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(said.pins), "--no-deps", "--disable-pip"]
    command += ["--vulnerability-service", "osv", "--format", "json", "--progress-spinner", "off"]
    command += ["--timeout", str(_TIMEOUT_S), *(["--osv-url", said.service] if said.service else [])]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        audit = audit_of(json.loads(ended.stdout))
    except (ValueError, KeyError):
        last = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
        if any(name in last for name in _NOT_ASKED):
            sys.stderr.write(f"dependencies were NOT audited, for the advisory service gives no answer: {last[:200]}\n")
            return 0
        sys.stderr.write(f"pip-audit failed: {last}\n")
        return 1
    for line in (*audit.mendable, *audit.unmended):
        sys.stderr.write(f"known vulnerability: {line}\n")
    if audit.skipped:
        sys.stderr.write(f"{audit.skipped} dependencies are not known to the advisory service\n")
    return 1 if audit.mendable else 0


if __name__ == "__main__":
    sys.exit(main())
