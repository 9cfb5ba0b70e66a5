"""A filled fleet with a hot region, over many seeds: MAST beside federated scheduling (MAST §5.6)."""
