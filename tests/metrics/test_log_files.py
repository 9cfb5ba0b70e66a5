"""Log files of the service stay small, and nothing that others write to them is lost from sight."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from services.log_output import configure_logging
from services.log_settings import LogSettings


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    (handler,) = structlog.get_config()["logger_factory"]().handlers
    handler.close()
    structlog.configure(**before)


def test_a_log_that_has_grown_is_put_aside(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "tier.log"
    configure_logging(file, LogSettings(greatest_file_bytes=2**16, kept_files=2))
    log = structlog.get_logger("test")
    # What a process of ours prints, to the file that its standard error was at the beginning.
    printed = os.open(file, os.O_WRONLY | os.O_APPEND)
    for number in range(1200):
        log.info("happened", number=number, text="x" * 200)
        if number % 100 == 0:
            os.write(printed, b"printed\n")
    os.close(printed)
    files = sorted(file.parent.iterdir())
    assert [one.name for one in files] == ["tier.log", "tier.log.1", "tier.log.2"]
    assert all(one.stat().st_size < 2**16 + 1000 for one in files)
    lines = [line for one in reversed(files) for line in one.read_text(encoding="utf-8").splitlines()]
    numbers = [json.loads(line)["number"] for line in lines if line != "printed"]
    assert numbers == list(range(numbers[0], 1200))
    assert "printed" in lines
    assert "\0" not in "".join(lines)
