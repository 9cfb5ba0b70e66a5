"""Simulations as a command runs them: inputs from files, real time, memory, a cache, several processes."""
