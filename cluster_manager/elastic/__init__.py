"""Elastic jobs: how many flexible tasks each of them gets (Lyra §5). Where these run is the region's to find."""
