"""Tests of the cluster manager."""
