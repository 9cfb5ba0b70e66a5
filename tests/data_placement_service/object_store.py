"""A server that speaks S3 on this machine, for the time of a test: regions store tables in its buckets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any

import pytest

ACCESS_KEY, SECRET_KEY = "AKIATOPMASTTESTKEY00", "never-to-be-seen-in-any-log"


@dataclass(frozen=True)
class ObjectStore:
    """Buckets, and what is in them."""

    url: str
    client: Any

    def storage(self, **buckets: str) -> tuple[tuple[str, str], ...]:
        """The URL of each region's storage."""
        return tuple((region, f"s3://{bucket}/tables") for region, bucket in sorted(buckets.items()))

    def write(self, bucket: str, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=bucket, Key=f"tables/{key}", Body=content)

    def files(self, bucket: str) -> dict[str, bytes]:
        """By key, without the folder of the region. What goes meanwhile may be there or not."""
        found: dict[str, bytes] = {}
        for name in sorted(self.names(bucket)):
            with suppress(self.client.exceptions.NoSuchKey):
                found[name] = self.client.get_object(Bucket=bucket, Key=f"tables/{name}")["Body"].read()
        return found

    def names(self, bucket: str) -> set[str]:
        """The same without their contents."""
        found = self.client.list_objects_v2(Bucket=bucket).get("Contents", [])
        return {entry["Key"].removeprefix("tables/") for entry in found}

    def buckets(self) -> list[str]:
        return sorted(bucket["Name"] for bucket in self.client.list_buckets()["Buckets"])


@contextmanager
def object_store(monkeypatch: pytest.MonkeyPatch, *buckets: str) -> Iterator[ObjectStore]:
    """One with these buckets; processes that are started meanwhile find it by their environment."""
    s3fs = pytest.importorskip("s3fs", reason="the library for S3 is not installed: make install")
    boto3 = pytest.importorskip("boto3", reason="the server for S3 is not installed: make install")
    server_module = pytest.importorskip("moto.server", reason="the server for S3 is not installed: make install")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        # All servers of a process have the same buckets: those of an earlier test, too.
        with closing(HTTPConnection(host, port)) as connection:
            connection.request("POST", "/moto-api/reset")
            assert connection.getresponse().status == HTTPStatus.OK
        for name, value in {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL_S3": url,
        }.items():
            monkeypatch.setenv(name, value)
        with closing(boto3.client("s3")) as client:
            for bucket in buckets:
                client.create_bucket(Bucket=bucket)
            yield ObjectStore(url, client)
    finally:
        server.stop()
        # What a process knows of a store it would know of that of the next test, which is elsewhere.
        s3fs.S3FileSystem.clear_instance_cache()
