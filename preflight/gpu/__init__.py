"""Ring 3: the cards, their driver and health, and whether what is asked for fits."""
