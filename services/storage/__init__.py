"""Where a service keeps files that several tiers need: folders and buckets that fsspec reaches."""
