"""Files of a warehouse folder that go to a server, and those that come from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from topmast.errors import PreconditionError
from topmast.v1 import data_placement_pb2 as messages
from topmast.warehouse_files import import_requests, received_folder


def _chunk(name: str, content: bytes) -> messages.WarehouseFileChunk:
    return messages.WarehouseFileChunk(file=name, content=content)


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_received_files_replace_those_of_their_names(tmp_path: Path) -> None:
    for content in (b"table\n", b"table\na\n"):
        with received_folder(tmp_path / "new" / "folder") as received:
            received.add(_chunk("tables.csv", content[:3]))
            received.add(_chunk("tables.csv", content[3:]))
            received.add(_chunk("../../jobs.csv", b"job\n"))
        assert _contents(tmp_path / "new" / "folder") == {"tables.csv": content, "jobs.csv": b"job\n"}


def test_a_folder_with_files_of_another_warehouse_stays_as_it_is(tmp_path: Path) -> None:
    before = {"tables.csv": b"mine", "quotas.parquet": b"mine", "notes.txt": b"mine"}
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    with (
        pytest.raises(PreconditionError, match=r"has quotas.parquet, which .*; remove it, or name another folder"),
        received_folder(tmp_path) as received,
    ):
        received.add(_chunk("tables.csv", b"other"))
    assert _contents(tmp_path) == before


def test_what_breaks_off_leaves_the_folder_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "tables.csv").write_bytes(b"mine")

    def break_off() -> None:
        with received_folder(tmp_path) as received:
            received.add(_chunk("tables.csv", b"half"))
            raise ConnectionError("the line is cut")

    with pytest.raises(ConnectionError):
        break_off()
    assert _contents(tmp_path) == {"tables.csv": b"mine"}


def test_both_formats_of_a_file_are_sent_for_the_server_to_refuse(tmp_path: Path) -> None:
    for name in ("tables.csv", "tables.parquet", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    sent = [request.chunk.file for request in import_requests(tmp_path, messages.ImportOptions())]
    assert sent == ["", "tables.csv", "tables.parquet"]
