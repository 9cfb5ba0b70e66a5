"""Generate the client whose calls block from the client for asyncio, or check that what is committed is fresh.

``python -m scripts.generate_sync_client`` writes; with ``--check`` nothing is written and the exit code is 1 when a
generated module differs by a byte from what its source gives today.

First what docstrings and comments say of asyncio is replaced phrase by phrase; a phrase that stands nowhere any more is
an error. Then tokens are translated one by one: ``async`` and ``await`` go, names lose their ``Async`` or ``async_``, a
few are looked up in a table. Then ruff, of the version in constraints.txt, removes imports that are not needed
any more, sorts the others, and formats.
"""

import argparse
import io
import re
import shutil
import subprocess
import sys
import sysconfig
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tokenize import TokenInfo
from typing import Final

_ROOT: Final = Path(__file__).resolve().parent.parent

_NAMES: Final = {
    "AccessAsyncStub": "AccessStub",
    "DataPlacementAsyncStub": "DataPlacementStub",
    "GlobalSchedulerAsyncStub": "GlobalSchedulerStub",
    "PackagesAsyncStub": "PackagesStub",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "aclosing": "closing",
    "anext": "next",
}
_PREFIXES: Final = ("Async", "async_")
_OF_ASYNCIO: Final = re.compile(r"\b(?:async|await|awaited|asynchronous|asyncio|event loop)\b")


@dataclass(frozen=True, slots=True)
class Module:
    """A hand-written module of ``topmast`` for asyncio, and the one that is generated from it.

    ``phrases`` are the texts in the source that must read otherwise: what docstrings and comments say of asyncio.
    """

    source: str
    generated: str
    phrases: Mapping[str, str] = field(default_factory=dict)


MODULES: Final = (
    Module(
        "async_client.py",
        "client.py",
        {
            "The client for asyncio: calls are awaited, iterators are asynchronous. client.py is generated from it.": (
                "The client for programs that wait: every call blocks until it is answered."
            ),
            "Talks to Topmast on an event loop; close it, or use it in an `async with` statement.": (
                "Talks to Topmast. Threads may share it; close it, or use it in a `with` statement."
            ),
            "a client may be built before there is an event loop.": "building a client opens no connection.",
            "`await client.submit(": "`client.submit(",
            # Typed as an iterator from the beginning: a narrower type would break the checks of users.
            "import AsyncGenerator, Callable, Iterable,": "import AsyncGenerator, Callable, Iterable, Iterator,",
            ') -> AsyncGenerator[Workload, None]:\n        """Workloads, newest first': (
                ') -> Iterator[Workload]:\n        """Workloads, newest first'
            ),
        },
    ),
    Module(
        "async_connection.py",
        "connection.py",
        {
            "One way of calling servers, for asyncio: channels, errors, streams that are taken up again.\n\n"
            "connection.py is generated from it.\n": (
                "One way of calling servers, for programs that wait: channels, errors, streams that are taken up again."
            ),
            "first needed, on the event loop that is running then.": "first needed. Threads may share it.",
        },
    ),
    Module(
        "async_access.py",
        "access.py",
        {
            "Who is calling, tokens, and the audit log, for asyncio. access.py is generated from it.": (
                "Who is calling, tokens, and the audit log."
            ),
        },
    ),
    Module(
        "async_data_placement.py",
        "data_placement.py",
        {
            "Tables of the data warehouse, for asyncio: the catalog, plans of where they should be, moves."
            " data_placement.py is generated from it.": (
                "Tables of the data warehouse: the catalog, plans of where they should be, moves."
            ),
        },
    ),
    Module(
        "async_fleet_operations.py",
        "fleet_operations.py",
        {
            "What operators ask of the fleet and of tenants, for asyncio: calls are awaited."
            " fleet_operations.py is generated from it.": "What operators ask of the fleet and of tenants.",
        },
    ),
    Module(
        "async_fleet_upload.py",
        "fleet_upload.py",
        {
            "Applies a fleet that goes in parts, for asyncio. fleet_upload.py is generated from it.": (
                "Applies a fleet that goes in parts, for programs that wait."
            ),
        },
    ),
    Module(
        "async_package_upload.py",
        "package_upload.py",
        {
            "Packs a folder and has it stored, for asyncio. package_upload.py is generated from it.": (
                "Packs a folder and has it stored, for programs that wait."
            ),
        },
    ),
    Module(
        "async_log_reader.py",
        "log_reader.py",
        {
            "Reads logs for asyncio: each cluster on a connection of its own. log_reader.py is generated from it.": (
                "Reads logs for programs that wait."
            ),
        },
    ),
    Module(
        "async_task_sessions.py",
        "task_sessions.py",
        {
            "Sessions with running tasks, for asyncio: what goes in and comes out as it does."
            " task_sessions.py is generated from it.": (
                "Sessions with running tasks, for programs that wait: what goes in and comes out as it does."
            ),
        },
    ),
)


class ClientNotGenerated(Exception):
    """A source does not fit the rules any more, or ruff is missing or refused the result."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed modules, write nothing")
    check_only = bool(parser.parse_args(arguments).check)
    package = _ROOT / "topmast"
    try:
        fresh = {module.generated: generate(module, package) for module in MODULES}
    except ClientNotGenerated as failure:
        print(failure, file=sys.stderr)
        return 1
    stale = stale_modules(fresh, package)
    if not check_only:
        for name in stale:
            (package / name).write_text(fresh[name], encoding="utf-8")
        print(f"topmast: {len(fresh)} generated modules, {len(stale)} changed")
    elif stale:
        print(f"Stale in topmast: {', '.join(stale)}. Run 'make client' and commit the result.", file=sys.stderr)
        return 1
    else:
        print(f"topmast: {len(fresh)} generated modules are fresh")
    return 0


def stale_modules(fresh: Mapping[str, str], package: Path) -> tuple[str, ...]:
    """The modules that are missing, or differ from what they should be, in the order of their names."""
    return tuple(
        name
        for name in sorted(fresh)
        if not (package / name).is_file() or (package / name).read_bytes() != fresh[name].encode()
    )


def generate(module: Module, package: Path) -> str:
    """The text of the generated module; raises ClientNotGenerated."""
    source = (package / module.source).read_text(encoding="utf-8")
    header = f"# Generated from {module.source} by `make client`; never edited.\n"
    return tidied(header + synchronous(source, module.phrases), f"topmast/{module.generated}")


def synchronous(source: str, phrases: Mapping[str, str]) -> str:
    """The source with blocking calls in place of awaited ones.

    Raises ClientNotGenerated when a phrase does not stand in it exactly once, or when the result still speaks of asyncio.
    """
    for old, new in phrases.items():
        if source.count(old) != 1:
            raise ClientNotGenerated(f"this should stand in the source once: {old!r}")
        source = source.replace(old, new)
    line_starts = [0, 0]
    for line in io.StringIO(source):
        line_starts.append(line_starts[-1] + len(line))
    parts: list[str] = []
    end = 0
    for (row, column), (end_row, end_column), text in _edits(
        list(tokenize.generate_tokens(io.StringIO(source).readline))
    ):
        parts += [source[end : line_starts[row] + column], text]
        end = line_starts[end_row] + end_column
    translated = "".join([*parts, source[end:]])
    left = _OF_ASYNCIO.search(translated)
    if left is not None:
        line = translated[left.start() :].partition("\n")[0]
        raise ClientNotGenerated(f"this still speaks of asyncio; a phrase is missing for it: {line!r}")
    return translated


Edit = tuple[tuple[int, int], tuple[int, int], str]
"""From where (row from 1, column), up to where, what stands there instead."""


def _edits(tokens: Sequence[TokenInfo]) -> Iterator[Edit]:
    """What changes in the source, from its beginning to its end."""
    closing: dict[int, str] = {}
    """What becomes of a bracket that ends the arguments of a type: token -> text."""
    for index, token in enumerate(tokens):
        if index in closing:
            yield token.start, token.end, closing[index]
        elif token.type != tokenize.NAME:
            continue
        elif token.string in ("async", "await"):
            yield token.start, tokens[index + 1].start, ""
        elif token.string == "aio" and tokens[index + 1].string == ".":
            # grpc.aio.Channel: the same name stands in grpc.
            yield token.start, tokens[index + 2].start, ""
        elif token.string == "Awaitable" and tokens[index + 1].string == "[":
            closing[_closing_bracket(tokens, index + 1)] = ""
            yield token.start, tokens[index + 1].end, ""
        elif token.string == "AsyncGenerator" and tokens[index + 1].string == "[":
            # A generator that blocks names a third type: what it returns.
            closing[_closing_bracket(tokens, index + 1)] = ", None]"
            yield token.start, token.end, "Generator"
        elif (name := _synchronous_name(token.string)) != token.string:
            yield token.start, token.end, name


def _synchronous_name(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return _NAMES.get(name, name)


def _closing_bracket(tokens: Sequence[TokenInfo], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        if tokens[index].type == tokenize.OP:
            depth += (tokens[index].string in "([{") - (tokens[index].string in ")]}")
            if not depth:
                return index
    raise ClientNotGenerated(f"line {tokens[opening].start[0]}: the bracket is never closed")


def tidied(source: str, path: str) -> str:
    """The module as ruff leaves it: no needless import, sorted imports, `yield from`, our format."""
    ruff = shutil.which("ruff", path=sysconfig.get_path("scripts")) or shutil.which("ruff")
    if ruff is None:
        raise ClientNotGenerated("ruff is not installed here; run 'make install' and use its environment")
    fix = ["check", "--quiet", "--no-cache", "--select=F401,I001,UP028", "--fix", "--unsafe-fixes"]
    for command in (fix, ["format", "--quiet", "--no-cache"]):
        run = subprocess.run(
            [ruff, *command, f"--stdin-filename={path}", "-"],
            cwd=_ROOT,
            input=source,
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0:
            raise ClientNotGenerated(f"ruff refuses {path}: {run.stderr or run.stdout}")
        source = run.stdout
    return source


if __name__ == "__main__":
    sys.exit(main())
