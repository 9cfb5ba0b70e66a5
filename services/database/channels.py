"""The notification channels: they only say that something is worth a look; what it is stands in the tables.

A lost notification costs a moment, never correctness: every process also looks from time to time. A writer calls
`services.database.connection.wake_after_commit`.
"""

AUCTION_CHANNEL = "topmast_auction"
"""A scan pass ended, or a round was opened, answered or closed."""

SCAN_CHANNEL = "topmast_scan"
"""Something happened that the next scan pass should see: a submission, an end, a change of tenants, or of what attempts hold."""

START_CHANNEL = "topmast_start"
"""Attempts have started: from now on they receive service, and may cross into other levels."""

REGION_CHANNEL = "topmast_region"
"""Regions should look at their live attempts: a cancellation was asked for, some were re-classified."""

EVENT_CHANNEL = "topmast_events"
"""The event log has grown."""

FLEET_CHANNEL = "topmast_fleet"
"""The fleet or the tenants were replaced."""

CATALOG_CHANNEL = "topmast_catalog"
"""Tables came, went or moved, or there are new sensitivity profiles."""

DATA_CHANNEL = "topmast_data"
"""Migrations of tables were asked for, or have changed their states."""
