"""Where data lives: the directory that the fast path asks, and (on the slow path) Tetris, which decides it."""
