"""A connection lasts longer than the certificate by which it was made: nothing more is answered through it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from services.database.engine import Database
from services.global_scheduler.access import AccessServicer
from services.security import authorization
from services.security.authentication import TokenAuthentication
from services.security.authorization import Authorization
from services.security.certificate_folder import add_client
from services.security.certificate_identity import CertificateIdentity
from services.security.certificate_principal import principal_of_peer
from services.security.transport import TransportFiles, TransportSecurity
from services.tiers.grpc_server import TierServer
from tests.security.certificate_worlds import made
from topmast.v1 import access_pb2, access_pb2_grpc

_DAYS = 5
_DAY_S = 86_400.0


def test_never_is_a_call_answered_after_its_certificate(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorization, "KEPT_REAL_S", 0.01)
    folder = made(tmp_path / "certificates")
    now_s = [time.time()]
    add_client(folder, CertificateIdentity("operator", "ann"), now_s[0], _DAYS)
    files = TransportFiles(folder / "tier.pem", folder / "tier-key.pem", folder / "authority.pem")
    client = [folder / "authority.pem", folder / "clients" / "ann-key.pem", folder / "clients" / "ann.pem"]
    credentials = grpc.ssl_channel_credentials(*(file.read_bytes() for file in client))

    async def run() -> None:
        async with Database(database_url) as database, asyncio.timeout(60.0):
            servicer = AccessServicer(database, require_ready=lambda: None)
            server = TierServer(
                [access_pb2.DESCRIPTOR.services_by_name["Access"]],
                lambda to: access_pb2_grpc.add_AccessServicer_to_server(servicer, to),
                authorization=Authorization(
                    TokenAuthentication(database), None, principal_of_peer, real_time_s=lambda: now_s[0]
                ),
                security=TransportSecurity(files, requires_client_certificates=True),
            )
            port = await server.start("127.0.0.1:0")
            try:
                async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
                    access = access_pb2_grpc.AccessStub(channel)
                    me = await access.WhoAmI(access_pb2.WhoAmIRequest())
                    assert me.name == "ann"
                    assert abs(me.expires_s - now_s[0] - _DAYS * _DAY_S) < _DAY_S
                    stub: Any = reflection_pb2_grpc.ServerReflectionStub
                    stream = stub(channel).ServerReflectionInfo()
                    await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
                    assert await stream.read() is not grpc.aio.EOF
                    now_s[0] = me.expires_s
                    for answer in (stream.read(), access.WhoAmI(access_pb2.WhoAmIRequest())):
                        with pytest.raises(grpc.aio.AioRpcError) as refused:
                            await answer
                        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
                        assert (refused.value.details() or "").startswith(
                            "the certificate of ann has ended; get a new one"
                        )
            finally:
                await server.stop(0)

    asyncio.run(run())
