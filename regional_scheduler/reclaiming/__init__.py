"""Reclaiming policies: which loaned machines go back when the inference clusters want some of them (Lyra §4)."""
