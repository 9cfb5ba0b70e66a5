"""topmast submit: workloads from files."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.after_option import AfterOption, said_after
from services.command_line.array_options import ArrayOption, array_option
from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.dry_run_view import print_checked
from services.command_line.environment_options import with_named_files
from services.command_line.exit_code import ExitCode
from services.command_line.files import STANDARD_INPUT, read_input
from services.command_line.notification_options import NotifyOnOption, NotifyOption, notification_of_options
from services.command_line.options import AddressOption, DryRunOption, FilesOption, IdempotencyKeyOption, JsonOption
from services.command_line.output import note, show_json, show_line
from services.command_line.working_directory_options import HERE, NoWorkdirOption, WorkdirOption, said_workdir
from services.command_line.workload_view import change_line
from services.command_line.yaml_places import YamlDocument, lines_named, place_in_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from domain.workload import WorkloadSpecification
    from formats.workload_file import WorkloadDocument
    from topmast import Client, Submission
    from topmast.v1 import workload_pb2


HoldOption = Annotated[
    bool, typer.Option("--hold", help="They wait, and are not ranked, until 'topmast release' releases them.")
]


def submit(
    files: FilesOption,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all have ended; 1 unless all completed.")] = False,
    workdir: WorkdirOption = None,
    no_workdir: NoWorkdirOption = False,
    hold: HoldOption = False,
    after: AfterOption = None,
    array: ArrayOption = "",
    notify: NotifyOption = "",
    notify_on: NotifyOnOption = "",
    idempotency_key: IdempotencyKeyOption = None,
    dry_run: DryRunOption = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit workloads from files, one per YAML document. Prints the name of each.

    Up to 1,000 are stored together or not at all. Their tasks start with the files of the folder that --workdir names, else that
    the document names (working_directory, from where its file is), else of this one. Those that name others in `after` wait for
    these: workloads that exist, or others of the same command, by their names.
    """
    from domain.dependencies import dependency_of
    from topmast import PartlySubmittedError

    said = said_workdir(workdir, no_workdir=no_workdir)
    described, documents, beside = _read(files)
    if after:
        further = tuple(map(dependency_of, said_after(after)))
        described = [
            replace(one, specification=replace(one.specification, after=(*one.specification.after, *further)))
            for one in described
        ]
    if hold:
        described = [replace(one, specification=replace(one.specification, hold=True)) for one in described]
    if array_option(array):
        described = [replace(one, specification=replace(one.specification, array=array)) for one in described]
    told = notification_of_options(notify, notify_on)
    if told is not None:
        described = [replace(one, specification=replace(one.specification, notify=told)) for one in described]
    folders = [
        None if no_workdir else said or folder_of(one, file) for one, file in zip(described, beside, strict=True)
    ]
    keys = None
    if idempotency_key is not None:
        keys = [f"{idempotency_key}/{number}" for number in range(len(described))]
    with connect(address, attempts=CHANGING_ATTEMPTS) as client, _named_by_place(documents):
        if dry_run:
            _check(client, [one.specification for one in described], keys, as_json)
            return
        messages = _with_packages(client, [one.specification for one in described], folders)
        try:
            submissions = client.submit_many(messages, idempotency_keys=keys)
        except PartlySubmittedError as error:
            # What was accepted exists, and must be printed before what went wrong.
            for submission in error.accepted:
                print_submission(submission, as_json)
            raise
        for submission in submissions:
            print_submission(submission, as_json)
        if wait:
            _wait(client, submissions, as_json)


def _read(files: Sequence[Path]) -> tuple[list[WorkloadDocument], list[YamlDocument], list[Path]]:
    """All workloads, where each stands, and in which file."""
    from formats.workload_file import parse_workload_documents

    described: list[WorkloadDocument] = []
    documents: list[YamlDocument] = []
    of_files: list[Path] = []
    for file in files:
        text, source = read_input(file)
        with lines_named(text):
            found = parse_workload_documents(text, source, partial(with_named_files, file.parent))
        described += found
        documents += [YamlDocument(source, text, number, len(found)) for number in range(len(found))]
        of_files += [file] * len(found)
    return described, documents, of_files


def _check(
    client: Client, specifications: Sequence[WorkloadSpecification], keys: Sequence[str] | None, as_json: bool
) -> None:
    from services.wire.workloads import specification_to_proto

    checked = client.check_many(list(map(specification_to_proto, specifications)), idempotency_keys=keys)
    for specification, one in zip(specifications, checked, strict=True):
        print_checked(one, specification.name, as_json)


@contextmanager
def _named_by_place(documents: Sequence[YamlDocument]) -> Iterator[None]:
    """What is refused is told by its place in the files."""
    from topmast import TopmastError

    try:
        yield
    except TopmastError as error:
        raise error.renamed(lambda field: place_in_files(documents, field)) from error


def folder_of(document: WorkloadDocument, file: Path) -> Path | None:
    """The folder that a document of that file wants packed; None where there is nothing to pack."""
    if document.working_directory is not None:
        beside = HERE if file == STANDARD_INPUT else file.parent
        return beside / Path(document.working_directory).expanduser()
    if document.specification.package or document.specification.emulated:
        return None
    return HERE


def _with_packages(
    client: Client, specifications: Sequence[WorkloadSpecification], folders: Sequence[Path | None]
) -> list[workload_pb2.WorkloadSpecification]:
    """The messages to send; each folder is packed once."""
    from services.wire.workloads import specification_to_proto

    packages: dict[Path, str] = {}
    for folder in folders:
        if folder is not None and folder not in packages:
            packages[folder] = client.upload_working_directory(folder)
    messages = [specification_to_proto(specification) for specification in specifications]
    for message, folder in zip(messages, folders, strict=True):
        if folder is not None:
            message.package = packages[folder]
    return messages


def print_submission(submission: Submission, as_json: bool) -> None:
    """The workload's name on standard output, for `$(topmast submit ...)`."""
    if as_json:
        show_json(submission)
        return
    show_line(submission.workload)
    if submission.existed:
        note(f"{submission.workload} had been submitted before, with this idempotency key")
    for remark in submission.remarks:
        note(remark)


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
