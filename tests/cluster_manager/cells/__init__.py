"""Tests of cells: HiveD's hierarchies, virtual clusters, buddy allocation and sharing safety."""
