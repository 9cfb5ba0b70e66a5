"""The catalog, plans and migrations of tables as a service."""
