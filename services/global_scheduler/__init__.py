"""The global scheduler as a service: the front door, and the scan pass that keeps the queue in order."""
