"""What a simulation starts from: traces of any origin, fleets, regions, tables and tenants."""
