"""The cluster manager tier's gRPC server."""
