"""How the client's channels behave: retries, reconnection, sizes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from topmast.targets import addresses_of
from topmast.v1 import cluster_manager_pb2, data_placement_pb2, global_scheduler_pb2

Option = tuple[str, str | int]

MAX_ATTEMPTS = 5
"""gRPC itself never tries more often."""

_LOOPBACK = ("127.", "localhost:", "[::1]:", "unix:")
_MAX_MESSAGE_BYTES = 256 * 1024 * 1024


def channel_options(address: str, attempts: int, *, secured: bool = False) -> Sequence[Option]:
    """Options for a channel on which each call is tried `attempts` times (1 to 5) while the answer is UNAVAILABLE.

    Calls that answer with a stream are not: whoever reads takes them up again (`Connection.stream`), and gRPC's own tries
    may wait for ever when a stream that has not brought anything yet breaks off. gRPC waits between the tries and adds the jitter: about 0.25 s, 0.75 s, 2.25 s and 5 s, enough for a tier to
    come back after it was killed. Every call may be repeated: reading changes nothing, cancelling and applying
    twice is like once, and submissions carry an idempotency key.

    Of several addresses those are called whose health says that they serve (`topmast.targets`). Where they are `secured` by TLS all
    must have a certificate for the first host: gRPC gets numbers to connect to, and one name to look for.
    """
    addresses = addresses_of(address)
    several = len(addresses) > 1
    options: list[Option] = [
        # By itself gRPC would wait up to two minutes before it looks again for a server that was away.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # A page of workloads or a fleet of 100,000 machines is more than the default of 4 MiB.
        ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
        # A server that vanished without a word is noticed also by a stream that only listens.
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.enable_retries", int(attempts > 1)),
    ]
    if secured and several:
        options.append(("grpc.ssl_target_name_override", addresses[0].rpartition(":")[0].strip("[]")))
    if attempts > 1 or several:
        options.append(("grpc.service_config", _service_config(attempts, several=several)))
    if all(one.startswith(_LOOPBACK) for one in addresses):
        # A proxy of the network must not stand between two processes of one machine.
        options.append(("grpc.enable_http_proxy", 0))
    return options


def _service_config(attempts: int, *, several: bool) -> str:
    config: dict[str, object] = {}
    if attempts > 1:
        # The more specific name is the one that holds.
        retried = {"name": [{}], "retryPolicy": _retry_policy(attempts, several=several)}
        config["methodConfig"] = [{"name": _streams()}, retried]
    if several:
        config["loadBalancingConfig"] = [{"round_robin": {}}]
        config["healthCheckConfig"] = {"serviceName": ""}
    return json.dumps(config)


def _retry_policy(attempts: int, *, several: bool) -> dict[str, object]:
    """Of several the next one serves within five seconds: tries are as far apart as they can be to go on for longer."""
    return {
        "maxAttempts": attempts,
        "initialBackoff": "1.5s" if several else "0.25s",
        "maxBackoff": "1.5s" if several else "5s",
        "backoffMultiplier": 3,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }


def _streams() -> list[dict[str, str]]:
    """The methods that answer with a stream."""
    return [
        {"service": service.full_name, "method": method.name}
        for file in (global_scheduler_pb2, cluster_manager_pb2, data_placement_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if method.server_streaming
    ]
