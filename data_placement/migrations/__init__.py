"""Migrations: copies of tables between regions, made so that a complete copy is always left (MAST §3.4)."""
