"""Ring 4: the machine beside its cards: disk, memory, limits, programs, load, the clock."""
