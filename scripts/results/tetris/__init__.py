"""The results page of Tetris, where tables are placed (MAST §3, §5.3, §5.6)."""
