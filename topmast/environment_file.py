"""Variables from a file, as docker and dotenv have them."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path

from dotenv.parser import parse_stream


def read_environment_file(file: str | Path) -> dict[str, str]:
    """The variables of a file of lines NAME=VALUE: for `environment` of a job.

    There may be comments, quotes and `export`; a name without `=` is the variable of this process. Nothing is expanded in
    values. Raises OSError when the file cannot be read, and ValueError, which names the line, when it does not read so.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text") from error
    return parse_environment(text, str(file), os.environ)


def parse_environment(text: str, source: str, here: Mapping[str, str]) -> dict[str, str]:
    """As `read_environment_file`, of text that came from `source`; `here` are the variables of this process."""
    variables: dict[str, str] = {}
    for binding in parse_stream(io.StringIO(text)):
        # An entry's text begins with the blank lines before it.
        original = binding.original.string
        line = binding.original.line + len(original[: len(original) - len(original.lstrip())].splitlines())
        if binding.error:
            raise ValueError(f"{source} line {line}: '{original.strip()[:40]}' does not read NAME=VALUE")
        if binding.key is None:
            continue
        value = binding.value if binding.value is not None else here.get(binding.key)
        if value is None:
            raise ValueError(f"{source} line {line}: {binding.key} has no value, and is not set here")
        variables[binding.key] = value
    return variables
