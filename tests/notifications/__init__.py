"""Notifications: users' URLs are told of what happens to their workloads."""
