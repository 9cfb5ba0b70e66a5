"""What is over and old leaves the database: archived as Parquet first, then deleted, a little at a time."""
