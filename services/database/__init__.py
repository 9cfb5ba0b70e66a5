"""The database: PostgreSQL, embedded or external; its tables and migrations; one store per concept."""
