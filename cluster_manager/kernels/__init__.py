"""Parts that several kernels of this package share."""
