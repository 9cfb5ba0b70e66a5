"""How the client's channels behave: retries, reconnection, sizes."""

from __future__ import annotations

import json
from collections.abc import Sequence

Option = tuple[str, str | int]

MAX_ATTEMPTS = 5
"""gRPC itself never tries more often."""

_LOOPBACK = ("127.", "localhost:", "[::1]:", "unix:")
_MAX_MESSAGE_BYTES = 256 * 1024 * 1024


def channel_options(address: str, attempts: int) -> Sequence[Option]:
    """Options for a channel on which each call is tried `attempts` times (1 to 5) while the answer is UNAVAILABLE.

    gRPC waits between the tries and adds the jitter: about 0.25 s, 0.75 s, 2.25 s and 5 s, enough for a tier to
    come back after it was killed. Every call may be repeated: reading changes nothing, cancelling and applying
    twice is like once, and submissions carry an idempotency key.
    """
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
    if attempts > 1:
        options.append(("grpc.service_config", _service_config(attempts)))
    if address.startswith(_LOOPBACK):
        # A proxy of the network must not stand between two processes of one machine.
        options.append(("grpc.enable_http_proxy", 0))
    return options


def _service_config(attempts: int) -> str:
    return json.dumps(
        {
            "methodConfig": [
                {
                    "name": [{}],
                    "retryPolicy": {
                        "maxAttempts": attempts,
                        "initialBackoff": "0.25s",
                        "maxBackoff": "5s",
                        "backoffMultiplier": 3,
                        "retryableStatusCodes": ["UNAVAILABLE"],
                    },
                }
            ]
        }
    )
