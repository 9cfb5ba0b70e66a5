"""What is deployed or typed: servers, Ray actors, database, command line. The only place that touches the world."""
