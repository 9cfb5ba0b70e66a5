"""Lets a call in when its caller is known, and may make it; the servicers find the caller in `present_principal`.

A call with a bearer token is judged before its request is read. Calls that go on (streams) end when their token is revoked, or
their certificate ends.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from services.grpc_errors import CallRefused, Unavailable, as_refusal
from services.security import refusals
from services.security.access_rules import AccessRule, rule_of
from services.security.audit import present_audit, resume_audit
from services.security.authentication import KEPT_REAL_S, Authentication, NobodyAsked
from services.security.principal import Principal, PrincipalKind, set_principal

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

AUTHORIZATION = "authorization"
"""The key of the metadata that has the token: `Bearer <token>`."""

_SCHEME = "bearer "


class CallChecks(Protocol):
    """What else a tier asks of calls: each method may raise CallRefused."""

    async def check(self, method: str, request: Message, principal: Principal) -> None:
        """Whether this caller may ask for that; of a stream of requests the first is checked. `method`: its path."""

    async def ended(
        self, method: str, request: Message | None, principal: Principal, refusal: CallRefused | None
    ) -> None:
        """The call has been answered, or refused; `request` None: it was not read."""


class NoChecks:
    """Roles are enough."""

    async def check(self, method: str, request: Message, principal: Principal) -> None:
        pass

    async def ended(
        self, method: str, request: Message | None, principal: Principal, refusal: CallRefused | None
    ) -> None:
        pass


class Authorization(grpc.aio.ServerInterceptor):
    """Asks every caller who they are."""

    def __init__(
        self,
        authentication: Authentication | None = None,
        checks: CallChecks | None = None,
        certificate: Callable[[Mapping[str, Any]], Principal | None] | None = None,
        *,
        real_time_s: Callable[[], float] = time.time,
    ) -> None:
        """`authentication` None: nobody is asked. `certificate`: whom the client's certificate stands for, by what gRPC knows of
        the connection; it is asked where no token came, when the request has been read. None: the server asks for none."""
        self._authentication = authentication or NobodyAsked()
        self._asks = authentication is not None
        self._checks = checks or NoChecks()
        self._certificate = certificate
        self._real_time_s = real_time_s

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[RequestT, ResponseT] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[RequestT, ResponseT] | None:
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        rule = rule_of(method)
        if handler is None or (rule is not None and rule.unasked):
            return handler
        presented = presented_token(handler_call_details.invocation_metadata)
        principal: Principal | None = None
        if presented is not None or self._certificate is None or not self._asks:
            try:
                principal = await self._authentication.principal(presented)
                require_role(method, rule, principal)
            except CallRefused as refusal:
                return grpc.stream_unary_rpc_method_handler(self._refusing(refusal, method, principal))
        for behaviour, made in (
            (handler.unary_unary, grpc.unary_unary_rpc_method_handler),
            (handler.unary_stream, grpc.unary_stream_rpc_method_handler),
            (handler.stream_unary, grpc.stream_unary_rpc_method_handler),
            (handler.stream_stream, grpc.stream_stream_rpc_method_handler),
        ):
            if behaviour is not None:
                call = _Call(method, rule, presented, principal)
                streams = handler.request_streaming or handler.response_streaming
                return made(
                    self._authorized(behaviour, call, streams=streams),
                    handler.request_deserializer,
                    handler.response_serializer,
                )
        return handler

    def _refusing(self, refusal: CallRefused, method: str, principal: Principal | None) -> Callable[..., Any]:
        async def refuse(_requests: object, _context: object) -> NoReturn:
            if principal is not None:
                await self._checks.ended(method, None, principal, refusal)
            raise refusal

        return refuse

    def _authorized(self, behaviour: Callable[..., Any], call: _Call, *, streams: bool) -> Callable[..., Any]:
        """The method itself, for callers who may call it."""
        if inspect.isasyncgenfunction(behaviour):

            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                async with self._let_in(call, context, request, streams=True) as checked:
                    async for response in behaviour(checked, context):
                        yield response

            return stream

        async def answer(request: Any, context: Any) -> Any:
            async with self._let_in(call, context, request, streams=streams) as checked:
                return await behaviour(checked, context)

        return answer

    @asynccontextmanager
    async def _let_in(self, call: _Call, context: Any, request: Any, *, streams: bool) -> AsyncIterator[Any]:
        """The request, once it is known whose it is; says afterwards how the call ended."""
        principal = call.principal or self._by_certificate(context)
        set_principal(principal)
        read: Message | None = None
        refusal: CallRefused | None = None
        try:
            require_role(call.method, call.rule, principal)
            # What somebody who may not call this has sent is not kept.
            if isinstance(request, Message):
                read = request
                await self._checks.check(call.method, request, principal)
            elif hasattr(request, "__aiter__"):
                request = self._checked_parts(request, call.method, principal)
            audited = present_audit()
            try:
                if not streams:
                    yield request
                    return
                async with self._while_valid(call, principal):
                    yield request
            finally:
                # A stream that its caller leaves may be closed by another task, which answers another call.
                if read is not None:
                    resume_audit(audited)
        except (grpc.aio.AbortError, grpc.aio.BaseError):
            refusal = refusals.broken_off()
            raise
        except Exception as error:
            refusal = as_refusal(error)
            raise refusal from error
        except BaseException:
            # Cancelled: the caller is gone, or had no more time.
            refusal = refusals.broken_off()
            raise
        finally:
            await self._checks.ended(call.method, read, principal, refusal)

    def _by_certificate(self, context: Any) -> Principal:
        principal = None if self._certificate is None else self._certificate(context.auth_context())
        if principal is None:
            raise refusals.no_token()
        self._require_certificate(principal)
        return principal

    def _require_certificate(self, principal: Principal) -> None:
        """Raises Unauthenticated once it has ended: a connection that was made before that may last."""
        if principal.expires_real_s is not None and principal.expires_real_s <= self._real_time_s():
            raise refusals.certificate_ended(principal.name)

    async def _require_valid(self, call: _Call, principal: Principal) -> None:
        if call.presented is None:
            self._require_certificate(principal)
        else:
            await self._authentication.principal(call.presented)

    async def _checked_parts(self, parts: AsyncIterator[Any], method: str, principal: Principal) -> AsyncIterator[Any]:
        first = True
        async for part in parts:
            if first and isinstance(part, Message):
                await self._checks.check(method, part, principal)
            first = False
            yield part

    @asynccontextmanager
    async def _while_valid(self, call: _Call, principal: Principal) -> AsyncIterator[None]:
        """Ends a call that goes on when its token, or its certificate, is not valid any more."""
        if not self._asks:
            yield
            return
        task = asyncio.current_task()
        ended: list[CallRefused] = []

        async def look_again() -> None:
            while True:
                await asyncio.sleep(KEPT_REAL_S)
                try:
                    await self._require_valid(call, principal)
                except Unavailable:
                    continue
                except CallRefused as refusal:
                    ended.append(refusal)
                    if task is not None:
                        task.cancel()
                    return

        looking = asyncio.create_task(look_again())
        try:
            yield
        except asyncio.CancelledError:
            if ended and task is not None:
                task.uncancel()
                raise ended[0] from None
            raise
        finally:
            looking.cancel()


class _Call:
    """What is known of a call before its request is read."""

    __slots__ = ("method", "presented", "principal", "rule")

    def __init__(
        self, method: str, rule: AccessRule | None, presented: str | None, principal: Principal | None
    ) -> None:
        self.method = method
        self.rule = rule
        self.presented = presented
        self.principal = principal


def require_role(method: str, rule: AccessRule | None, principal: Principal) -> None:
    """Raises PermissionDenied unless a rule lets callers of this role make this call. Where nobody is asked a rule is enough."""
    name = method.rpartition("/")[2]
    if rule is None:
        raise refusals.no_rule(name)
    if principal.kind is not PrincipalKind.UNASKED and principal.role not in rule.roles:
        raise refusals.not_for_role(principal, name, " or ".join(sorted(rule.roles)))


def presented_token(metadata: Any) -> str | None:
    """The bearer token of a call; "?" where something else came in its place, None where nothing did."""
    for key, value in metadata or ():
        if key == AUTHORIZATION:
            text = value if isinstance(value, str) else ""
            if text[: len(_SCHEME)].lower() != _SCHEME:
                return "?"
            return text[len(_SCHEME) :].strip() or "?"
    return None
