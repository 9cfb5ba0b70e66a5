"""The way of a workload through all tiers is one trace, as a collector gets it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from domain.fleet import Fleet, Region
from domain.identifiers import WorkloadId
from domain.workload import Emulated
from services.runtime.in_process import run_in_process
from services.tracing.sent_traces import SentTraces, exporter_to, ids_of
from services.wire.workloads import specification_to_proto
from tests.live.world import A100, EAST, RANKING, TENANTS, gpu_cluster, one_job
from topmast import AsyncClient
from topmast.v1 import global_scheduler_pb2, global_scheduler_pb2_grpc

_CALLER = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def Export(  # noqa: N802 - as OTLP calls it
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return trace_service_pb2.ExportTraceServiceResponse()


@contextmanager
def running_collector() -> Iterator[tuple[Collector, str]]:
    collector, server = Collector(), grpc.server(ThreadPoolExecutor(max_workers=1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]  # generated without types
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def test_all_tiers_tell_of_a_workload_in_one_trace(database_url: str, tmp_path: Path) -> None:
    fleet = Fleet((Region(EAST, (gpu_cluster("east-a", A100, 1),)),))
    began_real_s = time.time()

    async def run(traces: SentTraces) -> WorkloadId:
        async with (
            run_in_process(database_url, fleet, TENANTS, tmp_path, clock_speed=1000.0, traces=traces) as service,
            grpc.aio.insecure_channel(service.address) as channel,
            AsyncClient(service.address) as client,
        ):
            stub: global_scheduler_pb2_grpc.GlobalSchedulerAsyncStub = global_scheduler_pb2_grpc.GlobalSchedulerStub(
                channel
            )
            request = global_scheduler_pb2.SubmitWorkloadRequest(
                specification=specification_to_proto(one_job("traced", RANKING, Emulated(300.0, 60.0)))
            )
            # Of a program that is traced itself.
            caller = ("traceparent", f"00-{_CALLER[0]}-{_CALLER[1]}-01")
            submitted = await stub.SubmitWorkload(request, metadata=(caller,))
            await client.wait(submitted.workload)
            return WorkloadId(submitted.workload)

    with running_collector() as (collector, endpoint):
        traces = SentTraces(exporter_to(endpoint), "all")
        workload = asyncio.run(run(traces))
        traces.close()
    spans = {span.name: span for span in collector.spans}
    assert set(spans) == {"submit", "queue", "dispatch", "order", "start", "run"}
    assert len(collector.spans) == len(spans)
    trace_id, first_id = ids_of(workload)
    assert {span.trace_id for span in spans.values()} == {trace_id.to_bytes(16)}
    first = spans.pop("submit")
    assert (first.span_id, first.parent_span_id) == (first_id.to_bytes(8), b"")
    assert [(link.trace_id.hex(), link.span_id.hex()) for link in first.links] == [_CALLER]
    assert {span.parent_span_id for span in spans.values()} == {first.span_id}
    for span in (first, *spans.values()):
        said = {attribute.key: attribute.value for attribute in span.attributes}
        assert said["topmast.workload"].string_value == workload
        # In real time, though the service's clock is a thousand times as fast.
        assert began_real_s - 1 <= span.start_time_unix_nano / 1e9 <= span.end_time_unix_nano / 1e9 + 1e-3
        assert span.end_time_unix_nano / 1e9 <= time.time() + 1
    (end,) = (one.value.string_value for one in spans["run"].attributes if one.key == "topmast.end")
    assert end == "completed"
