"""Where tables are and where they go, as a service: the catalog, plans, migrations."""
