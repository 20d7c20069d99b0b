"""A stand-in for llama-server, run by the path of its `__main__.py`. Standard library only."""
