"""The way of a workload through the tiers, as spans of OpenTelemetry (decision 101)."""
