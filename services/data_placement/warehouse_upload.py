"""Takes the files of a warehouse folder as a client streams them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from services.grpc_errors import Exhausted, InvalidArgument
from topmast.v1 import data_placement_pb2 as messages

_is_file_name = re.compile(r"[a-z_]{1,40}\.(parquet|csv)", re.ASCII).fullmatch

LARGEST_FOLDER_BYTES = 16 * 2**30
"""Far more than a million tables take."""


async def receive_files(
    requests: AsyncIterator[messages.ImportWarehouseRequest], folder: Path, largest_bytes: int = LARGEST_FOLDER_BYTES
) -> messages.ImportOptions:
    """Writes what comes into the folder; returns the options.

    Raises InvalidArgument for a stream in no order, and Exhausted for one of more bytes.
    """
    received_bytes = 0
    is_first = True
    options = messages.ImportOptions()
    file: BinaryIO | None = None
    name = ""
    try:
        async for request in requests:
            was_first, is_first = is_first, False
            if request.WhichOneof("part") == "options":
                if not was_first:
                    # The first part is what the audit log has.
                    raise InvalidArgument.of("options", "must be in the first message, or nowhere")
                options = request.options
                continue
            chunk = request.chunk
            received_bytes += len(chunk.content)
            if received_bytes > largest_bytes:
                raise Exhausted(f"the folder has more than {largest_bytes:,} bytes; import it in parts (--keep-others)")
            if file is None or chunk.file != name:
                if file is not None:
                    file.close()
                file, name = _new_file(folder, chunk.file), chunk.file
            await asyncio.to_thread(file.write, chunk.content)
    finally:
        if file is not None:
            file.close()
    return options


def _new_file(folder: Path, name: str) -> BinaryIO:
    if not _is_file_name(name):
        raise InvalidArgument.of("chunk.file", f"is {name!r}; files are tables.parquet, regions.csv, ...")
    try:
        return (folder / name).open("xb")
    except FileExistsError as error:
        raise InvalidArgument.of("chunk.file", f"{name} comes twice; send each file once, as a whole") from error
