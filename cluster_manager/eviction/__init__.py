"""Eviction for a newcomer: candidates, victims, and which victims are required."""
