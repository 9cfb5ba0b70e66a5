"""What a region is known to have no place for: one memory, for the service, the simulator and suppositions alike."""
