"""A tier in a process of its own that breaks: the process ends, and the tier's log says why."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

_TIER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from services.configuration import Configuration
    from services.runtime.executor_kind import ExecutorKind
    from services.runtime.tier_actor import TierActor
    from services.runtime.tier_place import TierKind
    from services.runtime.tier_process import TierRequest

    database_url, home = sys.argv[1:]
    request = TierRequest(
        kind=TierKind.REGIONAL, listen="127.0.0.1:0", region=None, cluster=None, database_url=database_url,
        home=Path(home), configuration=Configuration(), executor=ExecutorKind.EMULATED,
    )
    TierActor(request, "second-")._thread.join()
    """
)
"""A regional scheduler that has no region."""


def test_why_a_tier_broke_is_in_its_log(database_url: str, tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", _TIER, database_url, tmp_path], check=False, timeout=60)
    assert ended.returncode == 1
    [file] = (tmp_path / "logs" / "tiers").iterdir()
    assert file.name.startswith("second-")
    [broke] = [line for line in map(json.loads, file.read_text().splitlines()) if line["level"] == "error"]
    assert broke["event"] == "the tier broke; its process ends, and Ray starts it again"
    assert broke["exception"][0]["exc_value"] == "a regional scheduler needs a region"
