"""The model: pure, immutable and deterministic; plain Python and attrs only."""
