"""The files of a warehouse folder as they go to a server and come from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from topmast.errors import PreconditionError
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
            (Path(aside) / name).replace(folder / name)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".parquet", ".csv") and path.is_file())
