"""topmast submit: workloads from files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.exit_code import ExitCode
from services.command_line.files import read_input
from services.command_line.options import AddressOption, FilesOption, IdempotencyKeyOption, JsonOption
from services.command_line.output import note, show_json, show_line
from services.command_line.workload_view import change_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topmast import Client, Submission


def submit(
    files: FilesOption,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all have ended; 1 unless all completed.")] = False,
    idempotency_key: IdempotencyKeyOption = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit workloads from files, one per YAML document. Prints the name of each.

    Up to 1,000 are stored together or not at all.
    """
    from formats.workload_file import parse_workloads
    from services.wire.workloads import specification_to_proto
    from topmast import PartlySubmittedError

    specifications = [
        specification_to_proto(specification) for file in files for specification in parse_workloads(*read_input(file))
    ]
    keys = None
    if idempotency_key is not None:
        keys = [f"{idempotency_key}/{number}" for number in range(len(specifications))]
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        try:
            submissions = client.submit_many(specifications, idempotency_keys=keys)
        except PartlySubmittedError as error:
            # What was accepted exists, and must be printed before what went wrong.
            for submission in error.accepted:
                print_submission(submission, as_json)
            raise
        for submission in submissions:
            print_submission(submission, as_json)
        if wait:
            _wait(client, submissions, as_json)


def print_submission(submission: Submission, as_json: bool) -> None:
    """The workload's name on standard output, for `$(topmast submit ...)`."""
    if as_json:
        show_json(submission)
        return
    show_line(submission.workload)
    if submission.existed:
        note(f"{submission.workload} had been submitted before, with this idempotency key")


def _wait(client: Client, submissions: Sequence[Submission], as_json: bool) -> None:
    failed = 0
    for submission in submissions:
        ended = client.wait(submission.workload)
        failed += ended.state != "COMPLETED"
        if as_json:
            show_json(ended)
        else:
            note(change_line(ended))
    if failed:
        raise typer.Exit(ExitCode.NOT_WELL)
