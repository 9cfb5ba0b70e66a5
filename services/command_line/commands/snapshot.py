"""topmast snapshot: one moment of the service, to simulate what follows from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.command_line.connection import connect
from services.command_line.failures import reported
from services.command_line.options import AddressOption, JsonOption, in_a_folder
from services.command_line.output import StageDisplay, show_json, show_line
from services.command_line.wording import counted, moment

app = typer.Typer(name="snapshot", help="One moment of the service, kept in a file.", no_args_is_help=True)

_PATIENCE_S = 600.0


def _snapshot_path(path: Path) -> Path:
    if not path.name.removesuffix(".gz").endswith(".json"):
        raise typer.BadParameter(f"a snapshot is called something.json or something.json.gz, not {path.name}")
    in_a_folder(path)
    return path


FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE.json[.gz]", dir_okay=False, callback=_snapshot_path, help="Where to write it.")
]


@app.command("save")
@reported()
def save(file: FileArgument, address: AddressOption = None, as_json: JsonOption = False) -> None:
    """Save the queue, the running attempts and all else that decisions depend on, as they are at one moment.

    'topmast simulate --snapshot FILE' goes on from there.
    """
    import gzip

    from formats.atomic_file import atomic_file
    from formats.snapshot_file import parse_snapshot

    with StageDisplay("snapshot") as say, connect(address, patience_s=_PATIENCE_S) as client:
        say("the service reads its database")
        content = client.snapshot()
    text = gzip.decompress(content)
    snapshot = parse_snapshot(text.decode("utf-8"), "the snapshot of the service")
    with atomic_file(file) as part:
        part.write_bytes(content if file.suffix == ".gz" else text)
    if as_json:
        summary = {
            "file": str(file),
            "taken_s": snapshot.taken_s,
            "queued": len(snapshot.queue),
            "running": len(snapshot.running),
        }
        show_json(summary)
        return
    queued, running = counted(len(snapshot.queue), "queued workload"), counted(len(snapshot.running), "running attempt")
    show_line(f"{file}: {queued} and {running} at {moment(snapshot.taken_s)}")
