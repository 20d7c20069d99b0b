"""`python -I -m runner.recovery VERB`: what must work without any installed package."""

import sys

from runner.recovery.command import VERBS, main

if len(sys.argv) < 2 or sys.argv[1] not in VERBS:
    sys.exit(f"usage: python -I -m runner.recovery {'|'.join(VERBS)} …")
sys.exit(main(sys.argv[1], sys.argv[2:]))
