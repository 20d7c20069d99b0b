"""`python -I traced.py -I -m runner.recovery …`: a guardian of this very tree, with a trap set in it."""

import json
import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.crash import trap

given = json.loads(os.environ.pop(trap.VARIABLE, None) or "{}")
sys.argv = ["runner.recovery", *sys.argv[4:]]
if given.get("at") and trap.hit_already(given["ledger"], given["who"]):
    given = {}  # a guardian that replaces one which was hit lives on
blow = SimpleNamespace(at=given["at"], what=given["blow"]) if given.get("at") else None
with trap.watching(blow, given.get("who"), given.get("ledger"), given.get("into")):
    runpy.run_module("runner.recovery", run_name="__main__", alter_sys=True)
