"""Fleets that come in parts, until they are applied."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Float, ForeignKey, LargeBinary, Table

from services.database.tables.definition import METADATA, NAME, key, optional, required

FLEET_UPLOADS: Final = Table(
    "fleet_uploads",
    METADATA,
    # The SHA-256 of the content.
    key("upload", NAME),
    required("size_bytes", BigInteger),
    # From the beginning on, without a gap.
    required("received_bytes", BigInteger),
    # When somebody last went on with it.
    required("touched_s", Float),
    # When it was last applied, or refused; null: not yet.
    optional("tried_s", Float),
)

FLEET_UPLOAD_PARTS: Final = Table(
    "fleet_upload_parts",
    METADATA,
    key("upload", NAME, ForeignKey("fleet_uploads.upload", ondelete="CASCADE")),
    key("first_byte", BigInteger),
    required("content", LargeBinary),
)
