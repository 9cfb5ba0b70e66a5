"""Cells: virtual clusters that share one cluster safely (HiveD §3), the second placement mechanism."""
