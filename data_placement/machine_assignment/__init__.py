"""Which machines belong to which cluster of a region (MAST §2: RAS pre-assigns machines to dynamic clusters)."""
