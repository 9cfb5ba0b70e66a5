"""Applies a fleet that goes in parts, for asyncio. fleet_upload.py is generated from it."""

from __future__ import annotations

import grpc

from topmast.async_connection import AsyncConnection
from topmast.errors import NotFoundError, UnavailableError, error_from_call
from topmast.fleet_parts import BROKE_OFF_WHILE_SENDING, FleetParts, FleetUploadProgress, Told
from topmast.reconnection import Reconnection
from topmast.v1 import global_scheduler_pb2, global_scheduler_pb2_grpc


class AsyncFleetUpload:
    """One upload. What breaks off is gone on with where it was, for as long as the client is patient."""

    def __init__(
        self,
        connection: AsyncConnection,
        stub: global_scheduler_pb2_grpc.GlobalSchedulerAsyncStub,
        peer: str,
        request: global_scheduler_pb2.ApplyFleetRequest,
        told: Told | None,
    ) -> None:
        self._connection = connection
        self._stub = stub
        self._peer = peer
        self._parts = FleetParts.of(request)
        self._told = told
        self._received_bytes = 0

    async def apply(self) -> global_scheduler_pb2.ApplyFleetResponse:
        """Sends what the server has not got, and has it applied; raises TopmastError."""
        # Where nothing answers at all nobody is kept waiting: that fails as every other call does.
        await self._begin()
        return await self._connection.persist(self._go_on)

    async def _begin(self) -> int:
        request = global_scheduler_pb2.BeginFleetUploadRequest(
            upload=self._parts.upload, size_bytes=len(self._parts.content)
        )
        known = await self._connection.call(self._stub.BeginFleetUpload, request, self._peer)
        return known.received_bytes

    async def _go_on(self, reconnection: Reconnection) -> global_scheduler_pb2.ApplyFleetResponse:
        received_bytes = await self._begin()
        if received_bytes > self._received_bytes:
            # It broke off again, but further on.
            reconnection.succeeded()
        self._received_bytes = received_bytes
        size_bytes = len(self._parts.content)
        try:
            if received_bytes < size_bytes:
                await self._stub.UploadFleet(self._parts.after(received_bytes, self._told))
            if self._told is not None:
                self._told(FleetUploadProgress(size_bytes, size_bytes))
            # Without a deadline: a server that is gone is noticed by the channel.
            request = global_scheduler_pb2.ApplyUploadedFleetRequest(upload=self._parts.upload)
            return await self._stub.ApplyUploadedFleet(request)
        except grpc.RpcError as error:
            failure = error_from_call(error, self._peer)
            if isinstance(failure, NotFoundError):
                failure = UnavailableError("the upload was removed meanwhile; apply the fleet again")
            elif failure.sentence == BROKE_OFF_WHILE_SENDING:
                failure = UnavailableError(f"{self._peer} ended the stream")
            raise failure from error
