"""ACTS, WAITS, REMEMBERS. A run, production and its return, the journal, the command line."""

__version__ = "0.1.0"
