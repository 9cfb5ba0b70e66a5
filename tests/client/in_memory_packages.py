"""Stands in for the store of packages: keeps them in memory, and counts what is sent."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import AsyncIterator
from typing import TypeAlias

import grpc

from topmast.v1 import package_pb2 as messages
from topmast.v1 import package_pb2_grpc

Context: TypeAlias = "grpc.aio.ServicerContext[object, object]"


class InMemoryPackages(package_pb2_grpc.PackagesServicer):
    """Packages by their SHA-256. `break_off_after` parts the next upload breaks off, once."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.limits = messages.PackageLimits(greatest_bytes=1 << 30, greatest_entries=10_000)
        self.uploads = 0
        self.largest_part_bytes = 0
        self.break_off_after: int | None = None

    def files(self, package: str) -> dict[str, tarfile.TarInfo]:
        """The entries of a package by their names."""
        with tarfile.open(fileobj=io.BytesIO(self.stored[package])) as tar:
            return {info.name: info for info in tar}

    async def GetPackageLimits(
        self, request: messages.GetPackageLimitsRequest, context: Context
    ) -> messages.PackageLimits:
        return self.limits

    async def FindPackage(self, request: messages.FindPackageRequest, context: Context) -> messages.FindPackageResponse:
        return messages.FindPackageResponse(stored=request.package in self.stored)

    async def UploadPackage(
        self, request_iterator: AsyncIterator[messages.PackagePart], context: Context
    ) -> messages.UploadPackageResponse:
        self.uploads += 1
        content, parts = b"", 0
        async for part in request_iterator:
            if parts == self.break_off_after:
                self.break_off_after = None
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the store does not answer")
            content += part.content
            parts += 1
            self.largest_part_bytes = max(self.largest_part_bytes, len(part.content))
        self.stored[hashlib.sha256(content).hexdigest()] = content
        return messages.UploadPackageResponse(size_bytes=len(content))
