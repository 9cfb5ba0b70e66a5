"""Load on a whole live service, by clients that run as tasks of a Ray of their own: ``python -m benchmarks.load``."""
