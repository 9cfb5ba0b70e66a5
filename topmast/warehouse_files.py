"""The files of a warehouse folder as they go to a server and come from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from topmast.v1 import data_placement_pb2 as messages

_CHUNK_BYTES = 2**20
_ENDINGS = (".parquet", ".csv")


def import_requests(folder: Path, options: messages.ImportOptions) -> Iterator[messages.ImportWarehouseRequest]:
    """The options, then the files chunk by chunk. A file that is there as .parquet and as .csv is taken as .parquet."""
    yield messages.ImportWarehouseRequest(options=options)
    found: dict[str, Path] = {}
    for ending in _ENDINGS:
        for path in sorted(folder.glob(f"*{ending}")):
            found.setdefault(path.stem, path)
    for path in found.values():
        with path.open("rb") as file:
            while content := file.read(_CHUNK_BYTES):
                chunk = messages.WarehouseFileChunk(file=path.name, content=content)
                yield messages.ImportWarehouseRequest(chunk=chunk)


def make_folder(folder: Path) -> None:
    """Makes the folder and those above it, where they are not there."""
    folder.mkdir(parents=True, exist_ok=True)


def warehouse_file(folder: Path, name: str, *, append: bool) -> BinaryIO:
    """The file to write into; whatever the server calls it, it lies in this folder."""
    return (folder / Path(name).name).open("ab" if append else "wb")
