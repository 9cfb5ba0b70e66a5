"""Packs a folder and has it stored, for asyncio. package_upload.py is generated from it."""

from __future__ import annotations

import os
from functools import partial

import grpc

from topmast.async_connection import AsyncConnection
from topmast.async_waiting import async_in_thread
from topmast.errors import UnavailableError, error_from_call
from topmast.fleet_parts import BROKE_OFF_WHILE_SENDING
from topmast.messages import existing_folder
from topmast.reconnection import Reconnection
from topmast.v1 import package_pb2, package_pb2_grpc
from topmast.working_directory import Package, PackageLimits, pack_folder


class AsyncPackageUpload:
    """Asks first, so that what is stored is not sent again; what breaks off is sent anew for as long as the client is patient."""

    def __init__(self, connection: AsyncConnection, address: str, peer: str) -> None:
        self._connection = connection
        self._peer = peer
        self._stub: package_pb2_grpc.PackagesAsyncStub = package_pb2_grpc.PackagesStub(connection.channel(address))

    async def upload(self, folder: str | os.PathLike[str]) -> str:
        """The name of the package; raises TopmastError, before anything is asked where there is no such folder."""
        folder = existing_folder("working_directory", folder)
        # Where nothing answers at all nobody is kept waiting: that fails as every other call does.
        request = package_pb2.GetPackageLimitsRequest()
        said = await self._connection.call(self._stub.GetPackageLimits, request, self._peer)
        limits = PackageLimits(said.greatest_bytes, said.greatest_entries)
        with await async_in_thread(partial(pack_folder, folder, limits)) as package:
            await self._connection.persist(partial(self._store, package))
            return package.name

    async def _store(self, package: Package, _: Reconnection) -> None:
        request = package_pb2.FindPackageRequest(package=package.name)
        found = await self._connection.call(self._stub.FindPackage, request, self._peer)
        if found.stored:
            return
        try:
            await self._stub.UploadPackage(package.parts())
        except grpc.RpcError as error:
            failure = error_from_call(error, self._peer)
            if failure.sentence == BROKE_OFF_WHILE_SENDING:
                failure = UnavailableError(f"{self._peer} ended the stream")
            raise failure from error
