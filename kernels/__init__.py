"""What the compiled code of all packages is made with."""
