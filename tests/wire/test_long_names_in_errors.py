"""Errors about names of any length still reach their caller: trailers have some 8 KiB."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest
from google.protobuf import any_pb2
from google.rpc import status_pb2

from domain.diagnosis import Diagnosis, Numbers, Quantity, Reason
from domain.identifiers import ClusterId, JobName, RegionId
from services.grpc_errors import AlreadyExists, CallRefused, NotFound, PreconditionFailed

WIDEST = Diagnosis(
    Reason.JOBS_DO_NOT_FIT_TOGETHER,
    RegionId("r" * 128),
    ClusterId("c" * 128),
    JobName("j" * 128),
    "jobs[1000].resources.memory_gib",
    tuple(Numbers(quantity, 1e9, 1e9) for quantity in Quantity),
    since_s=1e9,
)
"""With the longest names that there are."""


@pytest.mark.parametrize("letter", ["x", "é"])
def test_never_does_a_long_name_make_an_error_too_long_for_its_trailer(letter: str) -> None:
    name = letter * 10_000
    refusals: list[CallRefused] = [
        NotFound("machine", name),
        AlreadyExists("workload", name, f"there is a workload {name}"),
        PreconditionFailed("STATE", name, f"workload {name} has ended"),
        PreconditionFailed("NO_REGION_CAN_HOST", WIDEST.field, f"no region could ever host this: {name}", WIDEST),
    ]
    for refusal in refusals:
        status = status_pb2.Status(code=refusal.code.value[0], message=refusal.sentence)
        for detail in refusal.details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        trailer = len(quote(refusal.sentence)) + len(base64.b64encode(status.SerializeToString()))
        assert letter * 100 in refusal.sentence
        assert trailer < 8_000, type(refusal)
