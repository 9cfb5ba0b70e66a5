"""The section `logs` of scheduler.yaml: how large the log files of the service in its home grow."""

from __future__ import annotations

from pydantic import Field

from formats.schema import Schema


class LogSettings(Schema):
    """Of each log file, and of the former ones beside it (`name.log.1` is the newest)."""

    greatest_file_bytes: int = Field(default=16 * 2**20, ge=2**16, le=2**40)
    """A file that has grown so far is put aside, and a new one begun."""
    kept_files: int = Field(default=4, ge=1, le=1000)
    """So many former files stay."""
