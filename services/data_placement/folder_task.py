"""Reads a folder into the catalog or writes the catalog into one, in a process of its own: a million tables take a while.

`python -m services.data_placement.folder_task` reads a request, one line, from standard input, for the address of a database
may hold a password, and prints one JSON object: what was done, or what is wrong. When the input ends before that, whoever
asked is gone and was told nothing: it ends at once, and nothing of what it has not committed is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
from pydantic import TypeAdapter

from formats.problems import FieldProblem, FormatError
from formats.warehouse_catalog import read_catalog_folder
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.warehouse_export import write_csv_files
from services.database.warehouse_import import ImportChoices, ImportCounts, import_catalog
from services.log_output import configure_logging
from services.runtime.clock_record import load_clock
from services.tiers.child_process import ask_child, end_with_input


@dataclass(frozen=True, slots=True)
class FolderRequest:
    """What to do with a folder. `choices` None: the catalog is written into it."""

    database_url: str
    folder: str
    history_days: int
    choices: ImportChoices | None = None
    dry_run: bool = False


class FolderTaskFailed(Exception):
    """The process ended without an answer."""


class _DryRun(Exception):
    """Ends the transaction: nothing of it is to stay."""


async def run_folder_task(request: FolderRequest) -> Mapping[str, object]:
    """What the process answers. Raises FormatError for what it refuses; cancelled, it ends the process."""
    status, answered = await ask_child(
        "services.data_placement.folder_task", TypeAdapter(FolderRequest).dump_json(request)
    )
    if status:
        raise FolderTaskFailed(f"the process that reads and writes folders ended with {status}")
    answer = json.loads(answered)
    if "problems" in answer:
        raise FormatError("warehouse", [FieldProblem(field, description) for field, description in answer["problems"]])
    return dict(answer)


async def _answer(request: FolderRequest) -> dict[str, object]:
    async with Database(request.database_url, connections=2) as database:
        folder = Path(request.folder)
        now_s = (await database.run(load_clock)).now()
        if request.choices is None:
            write = partial(write_csv_files, folder=folder, now_s=now_s, window_days=request.history_days)
            await database.run(write, snapshot=True)
            await asyncio.to_thread(_pack, folder)
            return {}
        catalog = await asyncio.to_thread(read_catalog_folder, folder)
        counts: list[ImportCounts] = []

        async def store(connection: AnyConnection) -> None:
            counts[:] = [await import_catalog(connection, catalog, request.choices or ImportChoices(), now_s)]
            if request.dry_run:
                raise _DryRun

        with contextlib.suppress(_DryRun):
            await database.run(store)
        return asdict(counts[0])


def _pack(folder: Path) -> None:
    """CSV becomes Parquet, which is smaller and knows its types."""
    for path in sorted(folder.glob("*.csv")):
        names = pyarrow.csv.ConvertOptions(strings_can_be_null=False, column_types=_TEXTS)
        pyarrow.parquet.write_table(pyarrow.csv.read_csv(path, convert_options=names), path.with_suffix(".parquet"))
        path.unlink()


_TEXTS = {
    name: pyarrow.string()
    for name in ("table", "home", "replicas", "region", "job", "gpu_model", "application", "partition", "checksum")
}
"""Names that look like numbers are names all the same."""


def main() -> None:
    """Does what standard input says, and ends the process."""
    configure_logging()
    request = TypeAdapter(FolderRequest).validate_json(sys.stdin.buffer.readline())
    end_with_input()
    try:
        answer = asyncio.run(_answer(request))
    except FormatError as error:
        answer = {"problems": [(problem.field, problem.description) for problem in error.problems]}
    json.dump(answer, sys.stdout)
    sys.stdout.flush()
    # The thread that waits for the end of the input would hold the interpreter up.
    os._exit(0)


if __name__ == "__main__":
    main()
