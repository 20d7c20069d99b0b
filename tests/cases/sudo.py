"""A sudo that is only played: a stop is allowed without a password, everything else asks for one.

Asked without -n it waits for a line of input, as the real one does. Each call is written down.
"""

import os
import select
import sys
from pathlib import Path

with Path(os.environ["PLAYED_SUDO"]).open("a") as log:
    log.write(" ".join(sys.argv[1:]) + "\n")
words = [word for word in sys.argv[1:] if not word.startswith("-")]
if "stop" not in words:
    if "-n" in sys.argv:
        sys.stderr.write("sudo: a password is required\n")
        sys.exit(1)
    select.select([sys.stdin], [], [], 300)
    sys.exit(1)
if "-l" in sys.argv:
    sys.stdout.write(" ".join(words) + "\n")
