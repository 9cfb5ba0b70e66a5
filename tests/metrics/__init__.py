"""Metrics, and what is made of them: alerts and dashboards."""
