"""Traces that are sent to a collector. Imported only where they are wanted: OpenTelemetry is an extra."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from domain.identifiers import WorkloadId
from services.tracing.traces import Metadata

_WORKLOAD = "topmast.workload"
_NS_PER_S = 10**9


def exporter_to(endpoint: str) -> SpanExporter:
    """Sends spans to a collector by OTLP over gRPC; without TLS where the address begins with http://."""
    return OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http://"))


class SentTraces:
    """Spans are sent in a thread, some seconds later; what a collector does not take is dropped."""

    def __init__(self, exporter: SpanExporter, process: str, share: float = 1.0) -> None:
        self._ids = _GivenIds()
        provider = TracerProvider(
            # By the number of the trace, whatever the parent: so all tiers choose alike.
            sampler=TraceIdRatioBased(share),
            id_generator=self._ids,
            resource=Resource.create({SERVICE_NAME: "topmast", SERVICE_INSTANCE_ID: process}),
            # Who has made it closes it.
            shutdown_on_exit=False,
        )
        provider.add_span_processor(BatchSpanProcessor(exporter))
        self._provider = provider
        self._tracer = provider.get_tracer("topmast")
        self._propagator = TraceContextTextMapPropagator()

    @property
    def wanted(self) -> bool:
        return True

    def submitted(
        self, workload: WorkloadId, from_real_s: float, to_real_s: float, metadata: Metadata | None = None
    ) -> None:
        """The first span, with the number that all others take for their parent."""
        trace_id, span_id = ids_of(workload)
        with self._ids.given(trace_id, span_id):
            span = self._tracer.start_span(
                "submit",
                Context(),
                links=self._links(metadata or ()),
                attributes={_WORKLOAD: workload},
                start_time=_ns(from_real_s),
            )
        span.end(_ns(to_real_s))

    def done(
        self, what: str, workload: WorkloadId, from_real_s: float, to_real_s: float, said: Mapping[str, str | int]
    ) -> None:
        trace_id, span_id = ids_of(workload)
        submission = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
        span = self._tracer.start_span(
            what,
            set_span_in_context(NonRecordingSpan(submission), Context()),
            attributes={_WORKLOAD: workload, **{f"topmast.{name}": value for name, value in said.items()}},
            start_time=_ns(from_real_s),
        )
        span.end(_ns(to_real_s))

    def close(self) -> None:
        """Sends what is left."""
        self._provider.shutdown()

    def _links(self, metadata: Metadata) -> list[Link]:
        """To the span of the caller, where the call says that it has one (W3C trace context)."""
        carried = {key: value for key, value in metadata if isinstance(value, str)}
        caller = get_current_span(self._propagator.extract(carried, Context())).get_span_context()
        return [Link(caller)] if caller.is_valid else []


class _GivenIds(IdGenerator):
    """Random numbers, but for the span that is begun while some are given. Of one event loop."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self._given: tuple[int, int] | None = None

    @contextmanager
    def given(self, trace_id: int, span_id: int) -> Iterator[None]:
        self._given = trace_id, span_id
        try:
            yield
        finally:
            self._given = None

    def generate_trace_id(self) -> int:
        return self._random.generate_trace_id() if self._given is None else self._given[0]

    def generate_span_id(self) -> int:
        return self._random.generate_span_id() if self._given is None else self._given[1]


def ids_of(workload: WorkloadId) -> tuple[int, int]:
    """The number of the workload's trace, and that of its first span."""
    digest = hashlib.sha256(workload.encode()).digest()
    return int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])


def _ns(real_s: float) -> int:
    return round(real_s * _NS_PER_S)
