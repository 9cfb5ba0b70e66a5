"""A whole service whose tiers talk by TLS, through a rotation of its certificates."""

from __future__ import annotations

import time
from pathlib import Path

import grpc
import numpy as np
import pytest

from services.database import lease_store
from services.security.certificate_folder import finish_rotation, rotate
from services.security.transport import PLAINTEXT
from services.security.transport_settings import TransportSettings
from services.tiers.tier_channel import tier_channel
from tests.live.running import CONFIGURATION, LiveRun, in_live_service
from tests.live.world import Mix, workloads
from tests.security.certificate_worlds import answer_on, made, security_of
from topmast import AsyncClient
from topmast.errors import UnreachableError

pytestmark = pytest.mark.live

_COUNT = 12


def test_work_goes_on_while_certificates_are_renewed(
    database_url: str, tmp_path: Path, generator: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path / "certificates")
    tls = TransportSettings(certificate="tier.pem", key="tier-key.pem", certificate_authority="authority.pem")
    configuration = CONFIGURATION.model_copy(update={"tls": tls.beside(folder)})
    monkeypatch.setenv("TOPMAST_TLS_CA", str(folder / "authority.pem"))

    async def scenario(run: LiveRun) -> None:
        async with run.database.transaction() as connection:
            region = await lease_store.address(connection, f"{lease_store.REGIONAL_PREFIX}east")
        assert region is not None
        assert await answer_on(tier_channel(region, security_of(folder))) == "answers"
        assert await answer_on(tier_channel(region, PLAINTEXT)) != "answers"
        # A client's trust in the authority is not enough for a region.
        trusting = grpc.ssl_channel_credentials((folder / "authority.pem").read_bytes())
        assert await answer_on(grpc.aio.secure_channel(region, trusting)) != "answers"
        await run.submit(workloads(_COUNT, generator, Mix(shortest_s=120.0)))
        await run.follow(until=lambda event: event.event == "started")
        rotate(folder, time.time(), 10)
        # The client was made before, and knows the former authority alone.
        for name in ("global", "regional/east", "cluster/east-a"):
            await _restart(run, name)
        finish_rotation(folder)
        await _restart(run, "regional/west")
        await run.follow()
        run.check()
        monkeypatch.delenv("TOPMAST_TLS_CA")
        async with AsyncClient(run.service.address, attempts=1) as plain:
            with pytest.raises(UnreachableError, match="TOPMAST_TLS_CA"):
                await plain.status()

    in_live_service(database_url, tmp_path, scenario, configuration=configuration)


async def _restart(run: LiveRun, name: str) -> None:
    """Its successor connects anew to all others."""
    await run.service.stop(name)
    await run.service.start(name)
    await run.service.wait_until_held(run.database)
