"""Where in their files workloads stand: errors name the file, the line and the path there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_IN_BATCH = re.compile(r"^requests\[(\d+)\]\.(?:specification\.)?")


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One document of a file that was read; `number` counts from 0 those of the file, `documents` says how many it has."""

    source: str
    text: str
    number: int = 0
    documents: int = 1

    def place(self, path: str) -> str:
        """`path` in this document, with its line where it is known."""
        from formats.yaml_lines import line_of

        line = line_of(self.text, self.number, path)
        return path if line is None else f"line {line}, {path}"


def place_in_files(documents: Sequence[YamlDocument], field: str) -> str:
    """What a field of a batch is in the files that it was made of, one request a document."""
    found = _IN_BATCH.match(field)
    if found is None or int(found.group(1)) >= len(documents):
        return field
    document = documents[int(found.group(1))]
    number = f" (document {document.number + 1})" if document.documents > 1 else ""
    return f"{document.source}{number}: {document.place(field[found.end() :])}"


@contextmanager
def lines_named(text: str) -> Iterator[None]:
    """A FormatError of what is read inside, of the workloads of this text, names the lines of its fields."""
    from formats.problems import FieldProblem, FormatError

    try:
        yield
    except FormatError as error:
        numbered = re.search(r" \(document (\d+)\)$", error.source)
        document = YamlDocument(error.source, text, int(numbered.group(1)) - 1 if numbered else 0)
        raise type(error)(
            error.source,
            [FieldProblem(_lined(document, problem.field), problem.description) for problem in error.problems],
        ) from error


def _lined(document: YamlDocument, field: str) -> str:
    return field if not field or field.startswith("line ") else document.place(field)
