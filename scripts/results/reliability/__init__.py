"""The page on reliability: what a run of faults did, and what became of it."""
