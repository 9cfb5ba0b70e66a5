"""Write constraints.txt: the versions that pip chooses today for a new environment, all of them, one per line.

Run it with ``make constraints``. It names packages and versions only: where packages come from is the configuration
of the one who installs.
"""

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parent.parent
_TARGET: Final = _ROOT / "constraints.txt"
_HEADER: Final = "# The versions that are tested together. Written by `make constraints`.\n"
_PIN: Final = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+")


def main() -> int:
    """Install into a temporary environment and write what it holds; returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="topmast-pins-") as folder:
        venv.create(folder, with_pip=True)
        pip = [str(Path(folder) / "bin" / "python"), "-m", "pip"]
        subprocess.run([*pip, "install", "--quiet", ".[dev]"], cwd=_ROOT, check=True)
        frozen = subprocess.run([*pip, "freeze"], cwd=_ROOT, check=True, capture_output=True, text=True)
    pins = [line for line in frozen.stdout.splitlines() if not line.startswith("topmast")]
    strange = [line for line in pins if _PIN.fullmatch(line) is None]
    if strange or not pins:
        print(f"not a plain version: {'; '.join(strange) or 'nothing was installed'}", file=sys.stderr)
        return 1
    _TARGET.write_text(_HEADER + "\n".join(pins) + "\n", encoding="utf-8")
    print(f"{_TARGET.name}: {len(pins)} versions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
