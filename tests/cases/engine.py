"""A server that leaves its engine behind: the engine lives in a session of its own.

`engine.py MARK python -I SCRIPT ARGUMENTS…` starts the engine, whose command line holds MARK.engine,
and becomes the script.
"""

import runpy
import subprocess
import sys

ENGINE = (
    "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); signal.alarm(120); signal.pause()"
)

mark, _, _, *command = sys.argv[1:]
subprocess.Popen(
    [sys.executable, "-c", ENGINE, f"{mark}.engine"],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
    start_new_session=True,
)
sys.argv = command
runpy.run_path(command[0], run_name="__main__")
