"""The run of an attempt, from dispatch to its end: what happens to it, and what has to be done about it."""
