"""A service manager that is only played: it keeps one command alive and starts it again after a second.

`manager.py ROOM` keeps the command of ROOM/command alive, takes orders from ROOM/orders, and writes
ROOM/state ("active PID N" or "inactive 0 N", N being how often it has started it) and ROOM/log. Ends
by itself.
"""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

AGAIN_S = 1.0
LIVES_S = 120.0

room = Path(sys.argv[1])
command = json.loads((room / "command").read_text())
orders, log = room / "orders", (room / "log").open("a", buffering=1)
orders.touch()
wanted, child, due, read, starts = True, None, 0.0, 0, 0
ends, tick = time.monotonic() + LIVES_S, threading.Event()
while time.monotonic() < ends:
    text = orders.read_text()
    for order in text[read:].split():
        log.write(f"{order}\n")
        wanted, due = order == "start", 0.0
    read = len(text)
    if child is not None and child.poll() is not None:
        child, due = None, time.monotonic() + AGAIN_S
    if wanted and child is None and time.monotonic() >= due:
        child, starts = subprocess.Popen(command, stdin=subprocess.DEVNULL), starts + 1
    if not wanted and child is not None:
        child.terminate()
        child.wait(10)
        child = None
    fresh = room / "state.new"
    fresh.write_text(f"active {child.pid} {starts}" if child else f"inactive 0 {starts}")
    fresh.replace(room / "state")
    tick.wait(0.05)
if child is not None:
    child.terminate()
