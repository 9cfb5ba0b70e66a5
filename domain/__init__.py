"""The words of the design as types. Everything depends on this package; it depends on nothing."""
