"""Counts the calls that a tier answers, by method and gRPC code, and measures those with one answer."""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar, cast

import grpc
from prometheus_client import Histogram

from services.metrics.service_metrics import ServiceMetrics

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

_CODES = {code.value[0]: code.name for code in grpc.StatusCode} | {code: code.name for code in grpc.StatusCode}


class CountedCalls(grpc.aio.ServerInterceptor):
    """To stand before `CanonicalErrors`: it sees the codes that callers see."""

    def __init__(self, metrics: ServiceMetrics, tier: str) -> None:
        self._metrics = metrics
        self._tier = tier
        self._seen: set[str] = set()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Any],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[RequestT, ResponseT] | None:
        handler: grpc.RpcMethodHandler[RequestT, ResponseT] | None = await continuation(handler_call_details)
        if handler is None:
            # A method that there is not: its name is the caller's, and no label.
            return None
        service, _, method = str(handler_call_details.method).strip("/").rpartition("/")
        if not service.startswith("topmast."):
            # Health and reflection: looked at by machines, all the time.
            return handler
        if method not in self._seen:
            # Present from the first call on, so that the first failure is seen to be one more.
            self._metrics.calls.labels(self._tier, method, grpc.StatusCode.INTERNAL.name)
            self._seen.add(method)
        return self._counted(handler, method)

    def _counted(
        self, handler: grpc.RpcMethodHandler[RequestT, ResponseT], method: str
    ) -> grpc.RpcMethodHandler[RequestT, ResponseT]:
        reading = handler.request_deserializer, handler.response_serializer
        if handler.unary_unary is not None:
            seconds = self._metrics.call_seconds.labels(self._tier, method)
            return grpc.unary_unary_rpc_method_handler(self._once(handler.unary_unary, method, seconds), *reading)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(self._stream(handler.unary_stream, method), *reading)
        if handler.stream_unary is not None:
            return grpc.stream_unary_rpc_method_handler(self._once(handler.stream_unary, method, None), *reading)
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(self._stream(handler.stream_stream, method), *reading)
        return handler

    def _once(self, behaviour: Callable[..., Any], method: str, seconds: Histogram | None) -> Callable[..., Any]:
        async def counted(request: RequestT, context: grpc.aio.ServicerContext[RequestT, ResponseT]) -> ResponseT:
            began_real_s = time.perf_counter()
            try:
                response: ResponseT = await behaviour(request, context)
            except BaseException as error:
                self._count(method, context, error)
                raise
            finally:
                if seconds is not None:
                    seconds.observe(time.perf_counter() - began_real_s)
            self._count(method, context)
            return response

        return counted

    def _stream(self, behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
        """A streaming method yields its responses, or writes them to its context itself."""
        if not inspect.isasyncgenfunction(behaviour):
            return self._once(behaviour, method, None)

        async def counted(
            request: RequestT, context: grpc.aio.ServicerContext[RequestT, ResponseT]
        ) -> AsyncIterator[ResponseT]:
            try:
                async for response in behaviour(request, context):
                    yield response
            except BaseException as error:
                self._count(method, context, error)
                raise
            self._count(method, context)

        return counted

    def _count(
        self,
        method: str,
        context: grpc.aio.ServicerContext[RequestT, ResponseT],
        error: BaseException | None = None,
    ) -> None:
        # Typed as a code, but the number of one, and before anything was said nothing.
        number = cast("int | None", context.code())
        code = _CODES.get(number or 0, "UNKNOWN")
        if error is not None and code == grpc.StatusCode.OK.name:
            # It was not aborted: its caller has gone, or this server ends.
            code = grpc.StatusCode.CANCELLED.name
        self._metrics.calls.labels(self._tier, method, code).inc()
