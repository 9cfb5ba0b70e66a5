"""The section `tracing` of scheduler.yaml: whether spans are sent, and where."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

from pydantic import Field

from formats.problems import FieldProblem, FormatError
from formats.schema import Schema


class TracingSettings(Schema):
    """Where spans go; nowhere by default."""

    endpoint: Annotated[str, Field(min_length=1)] | None = None
    """Of a collector that speaks OTLP over gRPC, such as http://127.0.0.1:4317; null: no spans are made."""
    share: float = Field(default=1.0, gt=0, le=1.0)
    """Of the workloads: of each, all tiers send all spans or none."""

    def check(self, source: str = "scheduler.yaml") -> None:
        """Raises FormatError where spans are wanted and nothing is installed that makes them."""
        if self.endpoint is not None and find_spec("opentelemetry") is None:
            missing = "needs what is not installed: pip install 'topmast[tracing]'"
            raise FormatError(source, [FieldProblem("tracing.endpoint", missing)])
