"""Where tables should be: the costs and constraints of a placement (MAST §3.3)."""
