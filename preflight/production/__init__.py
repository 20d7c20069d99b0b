"""Ring 5: production as it serves, what it takes to stop it, and its way back."""
