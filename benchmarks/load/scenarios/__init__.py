"""Each scenario brings a service up, puts load on it, and says what was measured."""
