"""Tiresias against other schedulers: runs, pictures, document."""
