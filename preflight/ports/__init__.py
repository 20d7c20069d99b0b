"""Ring 2: who listens, what publishes a port unseen, and what was left over there."""
