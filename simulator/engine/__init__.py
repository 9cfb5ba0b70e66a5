"""The simulator's driver: the same decisions as the live service, on a virtual clock (decision 008)."""
