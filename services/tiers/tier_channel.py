"""The one way in which a tier calls another."""

from __future__ import annotations

import grpc

from services.security.outgoing_token import own_token_file
from services.security.transport import PLAINTEXT, TransportSecurity
from services.tiers.grpc_server import LARGEST_MESSAGE_BYTES
from topmast.authorized_channel import authorized

_OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", LARGEST_MESSAGE_BYTES),
    # A tier that vanished without a word is noticed within seconds.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


def tier_channel(address: str, security: TransportSecurity = PLAINTEXT, *, with_token: bool = True) -> grpc.aio.Channel:
    """A channel to the tier that listens at `host:port`; for the event loop that it is made on. Calls have the token of the tier that
    made it, unless who listens there is no tier. Raises CertificatesUnusable."""
    credentials = security.channel_credentials()
    channel = (
        grpc.aio.insecure_channel(address, options=_OPTIONS)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
    )
    file = own_token_file() if with_token else None
    return channel if file is None else authorized(channel, file.token)
