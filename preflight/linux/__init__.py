"""The real Box: the only room that looks at this machine. No check imports it."""
