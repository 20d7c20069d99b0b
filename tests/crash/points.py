"""The named steps of a run and of a recovery, as the functions that take them.

The names are the program's own. One that a run no longer passes is reported as a fault of this
list, so that a renamed function cannot quietly take its crash point along.
"""

TRANSITIONS = (
    "runner.journal.Journal.begin",
    "runner.recovery.lock.hold",
    "runner.run.Run._pay_old_debt",
    "runner.run.Run._look",
    "runner.run.Run._preflight",
    "runner.run.Run._identify",
    "runner.obligation.open_obligation",
    "runner.recovery.state.StateFile.begin",
    "runner.recovery.recipe.write",
    "runner.recovery.keeper.summon",
    "runner.recovery.state.StateFile.write",
    "preflight.rings.gate",
    "runner.journal.Journal.event",
    "runner.production.stop",
    "runner.production._note_stop",
    "runner.recovery.stop.Stop.run",
    "runner.gpu_memory.memory_back",
    "runner.measure._Session.hold",
    "runner.recovery.keeper.Keeper.spawn",
    "runner.measure._Session._remember",
    "runner.measure._Session._serve",
    "runner.candidate.Candidate.ready",
    "runner.measure._Session._send",
    "runner.candidate.Candidate.end",
    "runner.night.Night._judge",
    "runner.night.Night._restore",
    "runner.obligation.Obligation.phase",
    "runner.recovery.restore.restore",
    "runner.recovery.attempt.Attempt.run",
    "runner.recovery.attempt.Attempt._start_unless_there",
    "runner.recovery.attempt.Attempt._settle",
    "runner.recovery.attempt.Attempt._judge",
    "runner.closing.close",
    "runner.journal.Journal.close",
    "runner.recovery.recipe.close",
    "runner.obligation.Obligation.release",
    "runner.report.files.write_result",
    "runner.closing.deliver",
    "runner.journal.Journal.sent",
)

RECOVERY = (
    "runner.recovery.recover.recover",
    "runner.recovery.lock.hold",
    "runner.recovery.settle.settle",
    "runner.recovery.leftovers.end_leftovers",
    "runner.recovery.restore.restore",
    "runner.recovery.attempt.Attempt.run",
    "runner.recovery.attempt.Attempt._finish_old_stop",
    "runner.recovery.attempt.Attempt._start_unless_there",
    "runner.recovery.attempt.Attempt._settle",
    "runner.recovery.settle._Settling._paid",
    "runner.recovery.tell.tell",
    "runner.journal.Journal.close",
    "runner.recovery.settle._Settling._closed",
    "runner.recovery.recipe.close",
    "runner.recovery.tell.deliver",
    "runner.journal.Journal.sent",
)

BEFORE_THE_STOP = (
    "runner.run.Run._look",
    "runner.run.Run._preflight",
    "runner.run.Run._identify",
    "runner.obligation.open_obligation",
    "runner.recovery.recipe.write",
    "runner.recovery.keeper.summon",
    "preflight.rings.gate",
)
"""Steps at which production still serves, and nobody has asked it to end."""

WHILE_DOWN = (
    "runner.gpu_memory.memory_back",
    "runner.measure._Session.hold",
    "runner.recovery.keeper.Keeper.spawn",
    "runner.measure._Session._remember",
    "runner.measure._Session._serve",
    "runner.measure._Session._send",
    "runner.candidate.Candidate.end",
)
"""Steps at which production is down by our doing."""


COMING_BACK = (
    "point/runner.recovery.attempt.Attempt._start_unless_there/leave#1",
    "point/runner.recovery.attempt.Attempt._settle/enter#1",
)
"""Where production is on its way back, and may die once more."""


def places(names: tuple[str, ...]) -> list[str]:
    """Before and after each step."""
    return [f"point/{name}/{when}#1" for name in names for when in ("enter", "leave")]
