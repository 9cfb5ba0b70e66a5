"""The files of a warehouse folder as they go to a server and come from it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from topmast.errors import PreconditionError
from topmast.messages import existing_folder, refused
from topmast.v1 import data_placement_pb2 as messages

_CHUNK_BYTES = 2**20


def import_requests(folder: Path, options: messages.ImportOptions) -> Iterator[messages.ImportWarehouseRequest]:
    """The options, then the files chunk by chunk; what is there as .parquet and as .csv the server refuses."""
    yield messages.ImportWarehouseRequest(options=options)
    for path in _files(folder):
        with path.open("rb") as file:
            while content := file.read(_CHUNK_BYTES):
                chunk = messages.WarehouseFileChunk(file=path.name, content=content)
                yield messages.ImportWarehouseRequest(chunk=chunk)


def readable_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder; raises InvalidArgumentError where it, or a file of a warehouse in it, cannot be read."""
    path = existing_folder("folder", folder)
    try:
        for file in _files(path):
            file.open("rb").close()
    except OSError as error:
        raise refused("folder", f"{error.filename} cannot be read: {error.strerror}") from error
    return path


class ReceivedFiles:
    """Files as they come, chunk by chunk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.names: set[str] = set()

    def add(self, chunk: messages.WarehouseFileChunk) -> None:
        """Appends to the chunk's file; whatever the server calls it, it lies in this folder."""
        name = Path(chunk.file).name
        with (self._folder / name).open("ab" if name in self.names else "wb") as file:
            file.write(chunk.content)
        self.names.add(name)


@contextmanager
def received_folder(folder: Path) -> Iterator[ReceivedFiles]:
    """Files that are put into the folder, which is made, when all have come. Until then, and if any fails, it stays as it is.

    Raises PreconditionError where it has files of a warehouse that did not come: they would be read with those that did.
    """
    try:
        with _received_aside(folder) as received:
            yield received
    except OSError as error:
        if error.errno is None:
            # Not of the operating system: it is not about the folder.
            raise
        raise PreconditionError(f"{folder} cannot be written: {error.strerror}") from error


@contextmanager
def _received_aside(folder: Path) -> Iterator[ReceivedFiles]:
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".received-", dir=folder) as aside:
        received = ReceivedFiles(Path(aside))
        yield received
        others = [path.name for path in _files(folder) if path.name not in received.names]
        if others:
            raise PreconditionError(
                f"{folder} has {', '.join(others)}, which would be read with what is written; "
                f"remove {'it' if len(others) == 1 else 'them'}, or name another folder"
            )
        for name in sorted(received.names):
            _put(Path(aside) / name, folder / name)


def _put(received: Path, place: Path) -> None:
    """Replaces a regular file; through a link, or into a pipe, it is written."""
    if place.is_symlink() or (place.exists() and not place.is_file()):
        shutil.copyfile(received, place)
    else:
        received.replace(place)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".parquet", ".csv") and path.is_file())
