"""TELLS. Channels and delivery. Knows nothing of jobs, runs or production."""
