"""Chores of the repository; nothing here is part of the distribution."""
