"""The plug-in points of a simulation: what may be exchanged, and the shape that each plug-in has (docs/policies.md)."""
