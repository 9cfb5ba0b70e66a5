"""Elastic policies: how many flexible tasks running attempts have, and where (Lyra §5.2, §5.3)."""
