"""What the tiers have in common: a lease on what they serve, and a gRPC server that says how it is."""
