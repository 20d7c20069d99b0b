"""The midnight incident, replayed: somebody tidied up, and the run has to notice in time.

Earlier that evening another user of the box merged the shards into one file, deleted the draft
model and started a proxy on the port. Then the job fires. It must refuse, name all three, and
leave production's process exactly as it is.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from preflight.linux.proc import Ident
from runner import words
from runner.demo import child, servers
from runner.demo.box import Box
from runner.outcome import Outcome, exit_code

REFUSED = exit_code(Outcome.REFUSED)


def replay(box: Box, say: Callable[..., None], *, as_json: bool) -> tuple[int, dict[str, Any]]:
    """Do the damage, run the job, and show that nothing happened; the box is mended afterwards."""
    before = servers.production(box)
    told = _size(box.alerts)
    box.tidy_up()
    try:
        stranger = servers.start_stranger(box)
        say(
            "",
            "That evening somebody tidied up:",
            f"  merged the shards into {box.merged.name}, and deleted them",
            f"  deleted {box.draft.name}",
            f"  started a proxy on port {box.notes.candidate_port} (pid {stranger.pid})",
            "",
            "Midnight. The job fires:",
            "",
        )
        code, result = child.run(box, as_json=as_json)
    finally:
        servers.end(box, "stranger")
        box.mend()
    after = servers.production(box)
    alert = _text_from(box.alerts, told)
    untouched = before is not None and before == after
    say("", "The alert:", "", *(f"  {line}" for line in alert.splitlines()))
    say("", f"Production: {_verdict(before, after)}; exit code {code}.")
    if code == REFUSED and not untouched:
        code = exit_code(Outcome.BUG)
    pids = {"before": before.pid if before else None, "after": after.pid if after else None}
    return code, {**result, "production_pid": pids, "stranger_pid": stranger.pid, "alert": alert}


def _verdict(before: Ident | None, after: Ident | None) -> str:
    if before is None or after is None:
        return "NOT RUNNING"
    if before == after:
        return f"untouched, pid {after.pid} before and after"
    return f"TOUCHED, pid {before.pid} before and {after.pid} after"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _text_from(path: Path, start: int) -> str:
    """What was written to a file since it had this size, safe for a terminal."""
    if not path.exists():
        return ""
    return words.shown(path.read_bytes()[start:].decode("utf-8", "replace").strip(), lines=True)
