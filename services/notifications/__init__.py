"""Notifications: users' URLs are told, signed, of what happens to their workloads."""
