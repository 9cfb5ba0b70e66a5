"""Ways to a better placement, each behind one interface."""
