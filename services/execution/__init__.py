"""Carries out what was planned: attempts as processes on Ray, or emulated on the clock."""
