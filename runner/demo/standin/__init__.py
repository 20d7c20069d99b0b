"""A stand-in for llama-server, run as `python -I -m runner.demo.standin`. Standard library only."""
