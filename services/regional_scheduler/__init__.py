"""The regional scheduler as a service: its loop, its links to cluster managers, its gRPC server."""
