"""Synergy beside proportional shares, greedy packing and an exact program, on traces derived as in its §5.1."""
