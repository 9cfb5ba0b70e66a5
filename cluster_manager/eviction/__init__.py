"""Who is evicted for a newcomer: candidates, victims, and which of them are required."""
