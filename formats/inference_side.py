"""The `inference:` of a cluster in fleet.yaml: who serves inference there, and how its machines are lent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Annotated

from pydantic import Field

from domain.inference import (
    DEFAULT_FORECAST,
    DEFAULT_HEADROOM,
    DEFAULT_LOOK_EVERY_S,
    DEFAULT_RECLAIMING,
    FORECASTS,
    RECLAIMING_POLICIES,
    InferenceSide,
)
from formats.problems import FieldProblem, suggestion
from formats.schema import Schema, parse_schema

LONGEST_LOOK_S = 86_400.0
_LONGEST_TEXT = 1_000


class InferenceSchema(Schema):
    address: Annotated[str, Field(min_length=1, max_length=_LONGEST_TEXT)] | None = None
    series: Annotated[str, Field(min_length=1, max_length=_LONGEST_TEXT)] | None = None
    headroom: Annotated[float, Field(ge=0, lt=1)] = DEFAULT_HEADROOM
    look_every_s: Annotated[float, Field(ge=1, le=LONGEST_LOOK_S)] = DEFAULT_LOOK_EVERY_S
    forecast: str = DEFAULT_FORECAST
    reclaiming: str = DEFAULT_RECLAIMING


def inference_problems(schema: InferenceSchema | None, field: str) -> list[FieldProblem]:
    """What is wrong with a cluster's `inference`; `field` is its path."""
    if schema is None:
        return []
    problems: list[FieldProblem] = []
    if (schema.address is None) == (schema.series is None):
        remedy = "give either address (host:port of its InferenceScheduler) or series (a CSV file to play)"
        problems.append(FieldProblem(field, f"must say who serves inference; {remedy}"))
    if schema.address is not None and not _is_address(schema.address):
        problems.append(FieldProblem(f"{field}.address", f"must be host:port, not {schema.address}"))
    if schema.series is not None and not PurePath(schema.series).is_absolute():
        problems.append(
            FieldProblem(f"{field}.series", f"must be an absolute path where the service runs, not {schema.series}")
        )
    problems += _name_problems(schema.forecast, FORECASTS, "forecast", f"{field}.forecast")
    problems += _name_problems(schema.reclaiming, RECLAIMING_POLICIES, "reclaiming policy", f"{field}.reclaiming")
    return problems


def inference_side(schema: InferenceSchema | None) -> InferenceSide | None:
    """What was checked, as the domain has it."""
    if schema is None:
        return None
    return InferenceSide(
        schema.address or "",
        schema.series or "",
        float(schema.headroom),
        float(schema.look_every_s),
        schema.forecast,
        schema.reclaiming,
    )


def inference_document(side: InferenceSide) -> dict[str, object]:
    """As in fleet.yaml; `inference_from_document` gives the same back."""
    source = {"address": side.address} if side.address else {"series": side.series}
    return source | {
        "headroom": side.headroom,
        "look_every_s": side.look_every_s,
        "forecast": side.forecast,
        "reclaiming": side.reclaiming,
    }


def inference_from_document(document: object) -> InferenceSide | None:
    """What `inference_document` made; None for None. Raises FormatError."""
    return None if document is None else inference_side(parse_schema(InferenceSchema, document, "inference"))


def _is_address(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 2**16


def _name_problems(name: str, known: Sequence[str], kind: str, field: str) -> list[FieldProblem]:
    if name in known:
        return []
    return [FieldProblem(field, f"there is no {kind} {name}; {suggestion(name, known, kind)}")]
