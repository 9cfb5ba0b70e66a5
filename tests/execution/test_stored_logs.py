"""A log that a task leaves in a store in pieces, and that is read there as one."""

from __future__ import annotations

from pathlib import Path

from domain.identifiers import JobName
from services.execution.stored_logs import LogUpload, StoredLogs
from tests.execution.orders import key


def test_pieces_are_read_as_one_log_up_to_the_first_that_is_missing(tmp_path: Path) -> None:
    log, url = tmp_path / "train-0.log", f"file://{tmp_path / 'store'}"
    upload = LogUpload(log, url, key(), JobName("train"), 0)
    printed = [f"step {number}\n" * (number + 1) for number in range(12)]
    for piece in printed:
        with log.open("a") as stream:
            stream.write(piece)
        upload.upload()
    (stored,) = StoredLogs(url).tasks(key())
    whole = "".join(printed).encode()
    assert stored.size_bytes == len(whole)
    read, at = b"", 0
    while part := stored.read(at, 100):
        read, at = read + part, at + len(part)
    assert read == whole
    for start in range(len(whole)):
        assert whole[start:].startswith(stored.read(start, 7) or b"nothing")
    missing = sorted(path for path in (tmp_path / "store").rglob("*") if path.is_file())[5]
    missing.unlink()
    (stored,) = StoredLogs(url).tasks(key())
    end = len("".join(printed[:5]))
    assert stored.size_bytes == end
    assert stored.read(end, 7) == b""
    assert stored.read(end - 3, 7) == whole[end - 3 : end]
