"""Who calls with a certificate and no token: known by it, with the role and the tenants that it names."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from domain.fleet import Fleet, Region
from domain.identifiers import ANY_GPU_MODEL, TenantId
from domain.resources import Quota
from domain.tenant import Tenant
from domain.workload import Emulated
from services.runtime.in_process import run_in_process
from services.security.certificate_folder import CertificatesUnusable, add_client
from services.security.certificate_identity import CertificateIdentity
from services.security.certificate_principal import principal_of_peer
from services.security.transport_settings import ClientCertificates, TransportSettings
from services.wire.workloads import specification_to_proto
from tests.live.running import CONFIGURATION, PATIENCE_REAL_S
from tests.live.world import A100, EAST, gpu_cluster, one_job
from tests.security.certificate_worlds import made
from topmast import AsyncClient
from topmast.errors import InvalidArgumentError, NotAllowedError, UnauthenticatedError, UnreachableError

_FLEET = Fleet((Region(EAST, (gpu_cluster("east-a", A100, 1),)),))
_TENANTS = tuple(Tenant(TenantId(name), 1, Quota.of({ANY_GPU_MODEL: 16}, cpus=96.0)) for name in ("acme", "globex"))


def test_a_client_is_known_by_its_certificate_alone(database_url: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "certificates")
    add_client(folder, CertificateIdentity("tenant", "ann", ("acme",)), time.time(), 5)
    add_client(folder, CertificateIdentity("admin", "root"), time.time(), 5)
    tls = TransportSettings(
        certificate="tier.pem",
        key="tier-key.pem",
        certificate_authority="authority.pem",
        client_certificates=ClientCertificates.REQUIRED,
    ).beside(folder)
    configuration = CONFIGURATION.model_copy(update={"tls": tls})
    authority = folder / "authority.pem"

    async def run() -> None:
        async with (
            asyncio.timeout(PATIENCE_REAL_S),
            run_in_process(
                database_url, _FLEET, _TENANTS, tmp_path / "home", configuration=configuration, authentication=True
            ) as service,
        ):
            address = service.address

            def client(name: str, token: str | None = None) -> AsyncClient:
                return AsyncClient(
                    address,
                    certificate_authority=authority,
                    certificate=folder / "clients" / f"{name}.pem",
                    key=folder / "clients" / f"{name}-key.pem",
                    token=token,
                    attempts=1,
                )

            async with client("ann") as ann:
                who = await ann.access.who_am_i()
                assert (who.name, who.role, tuple(who.tenants), who.kind) == (
                    "ann",
                    "tenant",
                    ("acme",),
                    "certificate",
                )
                own, foreign = (
                    specification_to_proto(one_job("work", TenantId(tenant), Emulated(1.0, 1.0), gpus=8))
                    for tenant in ("acme", "globex")
                )
                assert (await ann.submit(own)).workload
                with pytest.raises(InvalidArgumentError, match="globex"):
                    await ann.submit(foreign)
                with pytest.raises(NotAllowedError, match="Undrain is for admin or operator"):
                    await ann.undrain("east-a-1")
            async with client("root") as root:
                (refused,) = [record async for record in root.access.audit(actor="ann")]
                assert (refused.action, refused.outcome, refused.after) == ("Undrain", "PERMISSION_DENIED", None)
            async with client("ann", token="topmast_0123456789abcdef_" + "0" * 64) as guessing:
                with pytest.raises(UnauthenticatedError):
                    await guessing.access.who_am_i()
            async with AsyncClient(address, certificate_authority=authority, attempts=1) as nobody:
                with pytest.raises(UnreachableError):
                    await nobody.access.who_am_i()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("identity", "sentence"),
    [
        (CertificateIdentity("user", "ann"), "--role: 'user' is no role"),
        (CertificateIdentity("tenant", "ann"), "--tenant: role tenant is nothing without tenants"),
        (CertificateIdentity("operator", "ann", ("acme",)), "--tenant: role operator is for the whole service"),
    ],
)
def test_what_nobody_can_be_gets_no_certificate_and_is_nobody(
    tmp_path: Path, identity: CertificateIdentity, sentence: str
) -> None:
    folder = made(tmp_path / "certificates")
    with pytest.raises(CertificatesUnusable, match=sentence):
        add_client(folder, identity, time.time(), 5)
    assert not list((folder / "clients").iterdir())
    assert principal_of_peer({"x509_subject_alternative_name": [identity.uri().encode()]}) is None
