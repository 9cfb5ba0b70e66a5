"""Placement by skew (Tiresias §3.3): which jobs are consolidated, and the limit that is learnt from their history."""
