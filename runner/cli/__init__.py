"""For hands: the verbs of the command line. Only here (and in the entry point) is anything printed."""
