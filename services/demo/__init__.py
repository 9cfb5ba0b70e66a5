"""`topmast demo`: the main job on one machine, in under three minutes, and an honest account of it."""
