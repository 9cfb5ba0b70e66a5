"""MAST against other ways to choose a region: runs, measures, pictures, document."""
