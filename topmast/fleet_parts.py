"""A fleet that is too large for one message, cut into parts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from topmast.v1 import global_scheduler_pb2

LARGEST_SINGLE_BYTES = 4 * 2**20
"""Fleets of up to some 60,000 machines go in one message, as large as gRPC lets messages be by default."""

PART_BYTES = 512 * 2**10
"""Some 7,000 machines."""

BROKE_OFF_WHILE_SENDING = "Internal error from Core"
"""What gRPC itself says in place of the reason when a stream ends while something is sent (grpc/grpc#36066)."""


@dataclass(frozen=True, slots=True)
class FleetUploadProgress:
    """How much of a fleet has been sent, of all that it has. When all of it has, it is applied, which takes a while too."""

    sent_bytes: int
    size_bytes: int


Told = Callable[[FleetUploadProgress], None]


@dataclass(frozen=True, slots=True)
class FleetParts:
    """One request to apply a fleet. The same fleet has always the same name, so that anybody can go on with it."""

    upload: str
    content: bytes

    @staticmethod
    def of(request: global_scheduler_pb2.ApplyFleetRequest) -> FleetParts:
        content = request.SerializeToString(deterministic=True)
        return FleetParts(hashlib.sha256(content).hexdigest(), content)

    def after(self, received_bytes: int, told: Told | None) -> Iterator[global_scheduler_pb2.FleetUploadPart]:
        """The parts that the server has not got yet; `told` hears of each when the one before it has been sent."""
        for first in range(received_bytes, len(self.content), PART_BYTES):
            if told is not None:
                told(FleetUploadProgress(first, len(self.content)))
            yield global_scheduler_pb2.FleetUploadPart(
                upload=self.upload, first_byte=first, content=self.content[first : first + PART_BYTES]
            )
