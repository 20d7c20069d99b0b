"""NAMES. What to run, and what would prove it. Never starts or stops a process, never waits."""
