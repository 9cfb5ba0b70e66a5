"""Strict pydantic models for documents, and their errors put into the project's words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType, UnionType
from typing import Annotated, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from domain.identifiers import IDENTIFIER_PATTERN
from formats.problems import FieldProblem, FormatError, in_quotes, suggestion

GREATEST_GPUS_PER_MACHINE = 62
"""A machine's GPUs are bits of one signed 64-bit word."""
GREATEST_CPUS_PER_MACHINE = 100_000.0
GREATEST_MEMORY_GIB = 10_000_000.0


class Schema(BaseModel):
    """A mapping in a document: no unknown fields, no conversions, no infinities."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


_has_exponent = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+", re.ASCII).fullmatch
_is_digit = re.compile("[0-9]", re.ASCII).fullmatch


def whole_number_keys(value: object) -> object:
    """A mapping by priority: in JSON, and in quotes, the number of a priority is text."""
    if not isinstance(value, dict):
        return value
    return {int(key) if isinstance(key, str) and _is_digit(key) else key: entry for key, entry in value.items()}


Name = Annotated[str, Field(pattern=f"^(?:{IDENTIFIER_PATTERN})$")]

SchemaModel = TypeVar("SchemaModel", bound=Schema)


def parse_schema(model: type[SchemaModel], document: object, source: str) -> SchemaModel:
    """The document as that model; raises FormatError with every problem."""
    if not isinstance(document, dict):
        expected = ", ".join(model.model_fields)
        found = "empty" if document is None else f"a {_kind_of(document)}"
        problem = FieldProblem("", f"must be a mapping with the fields {expected}, but it is {found}")
        raise FormatError(source, [problem])
    try:
        return model.model_validate(document)
    except ValidationError as error:
        problems = [
            FieldProblem(field_path(entry["loc"]), _describe(model, entry["loc"], entry["type"], entry))
            for entry in error.errors(include_url=False)
        ]
        raise FormatError(source, problems) from error


def field_path(location: tuple[int | str, ...]) -> str:
    """`("jobs", 0, "tasks")` as `jobs[0].tasks`."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part == "[key]":
            path += " (a key)"
        else:
            path += f".{part}" if path else part
    return path


def _describe(model: type[Schema], location: tuple[int | str, ...], kind: str, entry: Mapping[str, object]) -> str:
    value = entry.get("input")
    context = entry.get("ctx")
    limits: Mapping[str, object] = context if isinstance(context, Mapping) else {}
    got = f"not {in_quotes(value)}"
    if kind == "missing":
        return "is missing; add it"
    if kind == "extra_forbidden":
        owner = _model_at(model, location[:-1])
        known = tuple(owner.model_fields) if owner is not None else ()
        return f"is not a field that exists here; {suggestion(str(location[-1]), known, 'field')}"
    if kind == "string_pattern_mismatch":
        return "must be a name: 1 to 128 letters, digits or . _ : / -, beginning with a letter or digit, " + got
    if kind in ("enum", "literal_error"):
        return f"must be {limits.get('expected')}, {got}"
    if kind == "value_error" and isinstance(value, Mapping):
        # Of several fields together: the sentence names them.
        return str(limits.get("error"))
    if kind == "float_type" and isinstance(value, str) and _has_exponent(value):
        return f"must be a number, {got}: with an exponent YAML wants a point and a sign as well, as in 1.0e+9"
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}, {got}"
    for limit, words in _LIMITS.items():
        if limit in limits and kind in _LIMIT_KINDS:
            return f"must be {words} {limits[limit]}, {got}"
    return f"{entry.get('msg')}, {got}"


_EXPECTED = MappingProxyType(
    {
        "int_type": "a whole number",
        "int_parsing_size": "a whole number of reasonable size",
        "float_type": "a number",
        "finite_number": "a finite number",
        "string_type": "text (put it in quotes)",
        "string_too_short": "text that is not empty",
        "bool_type": "true or false",
        "list_type": "a list",
        "dict_type": "a mapping",
        "model_type": "a mapping",
        "model_attributes_type": "a mapping",
    }
)
_LIMITS = MappingProxyType({"ge": "at least", "gt": "greater than", "le": "at most", "lt": "less than"})
_LIMIT_KINDS = frozenset({"greater_than_equal", "greater_than", "less_than_equal", "less_than"})


def _kind_of(value: object) -> str:
    return {"list": "list", "str": "text", "int": "number", "float": "number"}.get(
        type(value).__name__, type(value).__name__
    )


def _model_at(model: type[Schema], location: tuple[int | str, ...]) -> type[Schema] | None:
    """The model that a place in the document is checked with; None when it is a plain value."""
    current: object = model
    for part in location:
        if isinstance(part, int):
            arguments = [a for a in get_args(_without_none(current)) if a is not type(None)]
            # Of a list its items, of a mapping with numbers as keys its values.
            current = arguments[-1] if arguments else None
        else:
            owner = _as_model(current)
            field = owner.model_fields.get(part) if owner is not None else None
            current = field.annotation if field is not None else None
    return _as_model(current)


def _without_none(annotation: object) -> object:
    """`X | None` as X; `Annotated[X, ...]` as X."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _without_none(get_args(annotation)[0])
    if origin is Union or origin is UnionType:
        rest = [argument for argument in get_args(annotation) if argument is not type(None)]
        return _without_none(rest[0]) if len(rest) == 1 else annotation
    return annotation


def _as_model(annotation: object) -> type[Schema] | None:
    bare = _without_none(annotation)
    return bare if isinstance(bare, type) and issubclass(bare, Schema) else None
