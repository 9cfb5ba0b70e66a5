"""What carries a migration out: real files between the storage of regions, or time passing."""
