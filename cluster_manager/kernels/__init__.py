"""What the compiled code of this package is made with."""
