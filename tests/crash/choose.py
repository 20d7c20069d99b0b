"""Which cases are played: every layer has its share, and everything else is drawn by the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.crash import points
from tests.crash.cases import Blow, Case

Places = dict[str, dict[str, int]]

ALWAYS = tuple(name for name in points.TRANSITIONS if not name.endswith("Journal.sent"))
"""The steps of every run: one that is proven tells nobody."""

TREES = ("ignore-term", "double-fork", "setsid", "clear-env", "ignore-term,double-fork,setsid")
SHARES = {
    "pair": 0.28,
    "line": 0.20,
    "opcode": 0.14,
    "tree": 0.07,
    "signal": 0.05,
    "world": 0.08,
    "disk": 0.04,
    "syscall": 0.05,
    "power": 0.05,
    "crowd": 0.03,
    "frozen": 0.01,
}
OFTEN = 3
"""What is passed more often than this is passed in a loop, perhaps one that waits."""

_OFTENER = ("runner/recovery/", "runner/night", "runner/obligation", "runner/production",
            "runner/closing", "runner/candidate", "runner/measure", "runner/run.py",
            "runner/journal")  # fmt: skip


def stale(places: Places) -> list[str]:
    """Names in points.py that a run, or a recovery, does not pass."""
    run = {name for name in points.TRANSITIONS if f"point/{name}" not in places["run"]}
    again = {name for name in points.RECOVERY if f"point/{name}" not in places["recover"]}
    return sorted(run) + sorted(again)


def cases(n: int, seed: int, places: Places, layers: list[str]) -> list[Case]:
    """`n` cases, in an order that puts the slow ones first."""
    draw = random.Random(seed)
    shares = {name: share for name, share in SHARES.items() if not layers or name in layers}
    whole = sum(shares.values())
    chosen: list[Case] = []
    for name, share in shares.items():
        count = max(1, round(n * share / whole))
        made = MAKERS[name](draw, places)
        chosen += [next(made) for _ in range(count)]
    draw.shuffle(chosen)
    chosen = chosen[:n]
    return sorted(chosen, key=lambda case: case.layer != "frozen")


def _pairs(draw: random.Random, places: Places) -> Iterator[Case]:
    """Each transition of a run, with a crash at each point of the recovery that follows."""
    while True:
        firsts = points.places(points.TRANSITIONS)
        draw.shuffle(firsts)
        for first in firsts:
            second = draw.choice(points.places(points.RECOVERY))
            yield Case(
                "pair",
                (Blow("run", "KILL", first), Blow("guardian", "KILL", second)),
                production=draw.choice(("", "", "load:0.4", "load:0.4,late")),
                candidate=draw.choice(_candidates(first, places)),
                home=draw.choice(("", "", "none")),
                services=draw.choice(("", "2")),
                timers=draw.choice(("", "", "", "3")),
            )


def _candidates(place: str, places: Places) -> list[str]:
    """With which candidates a run comes to a place: a task sends no request, a proven run no alert."""
    name = place.rpartition("/")[0]
    telling = name.endswith("Journal.sent")
    task = [] if telling or name not in places["task"] else ["task:0.1"]
    return ["refuted", "refuted", *([] if telling else [""]), *task]


def _places(kind: str) -> object:
    def made(draw: random.Random, places: Places) -> Iterator[Case]:
        pools = {
            "run": _pool(places["run"], kind),
            "task": _pool(places["task"], kind),
            "guardian": _pool(_after(places["guardian"], places["guardian-idle"]), kind),
            "guardian-idle": _pool(places["guardian-idle"], kind),
            "recover": _pool(places["recover"], kind),
        }
        while True:
            yield _hit(draw, pools)

    return made


def _after(passed: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """What a guardian passes only once its run is dead: hit earlier, it would guard nothing, and
    the run would never come to the blow that is meant for it.
    """
    return {place: count for place, count in passed.items() if place not in before}


def _pool(passed: dict[str, int], kind: str) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    every = [(place, count) for place, count in passed.items() if place.startswith(f"{kind}/")]
    often = [one for one in every if one[0].split("/", 1)[1].startswith(_OFTENER)]
    return every, often


def _hit(draw: random.Random, pools: dict[str, tuple[list[tuple[str, int]], ...]]) -> Case:
    who = draw.choice(("run", "run", "run", "task", "guardian", "guardian-idle", "recover"))
    every, often = pools[who]
    place, count = draw.choice(often if draw.random() < 0.7 else every)
    # who is polled for comes sooner or later than when the passes were counted
    most = count if count <= OFTEN else count // 2
    number = min(most, int(1.5 ** draw.uniform(0, 12)))
    spot = f"{place}#{number}"
    kind = place.split("/")[0]
    task = "task:0.1" if who == "task" else "refuted"  # as they were when the places were recorded
    if who in ("run", "task"):
        return Case(kind, (Blow("run", "KILL", spot),), candidate=task)
    if who == "guardian-idle":
        return Case(kind, (Blow("guardian", "KILL", spot),), candidate="refuted")
    first = Blow("run", "KILL", "point/runner.measure._Session._serve/enter#1")
    if who == "guardian":
        return Case(kind, (first, Blow("guardian", "KILL", spot)))
    early = Blow("guardian", "KILL", "point/runner.recovery.recover.recover/enter#1")
    return Case(kind, (first, early, Blow("recover", "KILL", spot)))


def _trees(draw: random.Random, _: Places) -> Iterator[Case]:
    """Candidates that do not want to end, with a blow to the run at each transition."""
    firsts = points.places(ALWAYS[12:])
    while True:
        blows = [Blow("run", "KILL", draw.choice(firsts))] if draw.random() < 0.8 else []
        home = draw.choice(("", "none"))
        if blows and draw.random() < 0.5:
            blows.append(Blow("guardian", "KILL", draw.choice(points.places(points.RECOVERY))))
        yield Case("tree", tuple(blows), candidate=draw.choice(TREES), home=home)


def _signals(draw: random.Random, _: Places) -> Iterator[Case]:
    """The orderly way: a wish to end, at each transition."""
    firsts = points.places(ALWAYS)
    while True:
        yield Case(
            "signal", (Blow("run", draw.choice(("TERM", "INT", "HUP")), draw.choice(firsts)),)
        )


def _world(draw: random.Random, _: Places) -> Iterator[Case]:
    """Other people and other faults, while the run stands still at a named step."""
    acts = {
        "kill-production": points.BEFORE_THE_STOP,
        "kill-guardian": ("preflight.rings.gate",),
        "stop-production": points.BEFORE_THE_STOP,
        "steal-port": points.WHILE_DOWN,
        "serve-instead": points.WHILE_DOWN,
        "lose-model": points.WHILE_DOWN,
        "corrupt-journal": points.WHILE_DOWN,
        "lock-journal": points.WHILE_DOWN,
        "newer-journal": points.WHILE_DOWN,
        "remove-state": points.WHILE_DOWN,
        "lose-recipe": points.WHILE_DOWN,
        "corrupt-recipe": points.WHILE_DOWN,
        "break-config": ALWAYS[4:],
    }
    while True:
        for name, steps in acts.items():
            where = draw.choice(points.places(steps))
            then = draw.choice(("", "", "KILL")) if steps is points.WHILE_DOWN else ""
            yield Case("world", (Blow("run", "STOP", where),), act=name, then=then)
        back = draw.choice(points.COMING_BACK)
        then = draw.choice(("", "KILL"))
        yield Case("world", (Blow("run", "STOP", back),), act="kill-production", then=then)


def _disks(draw: random.Random, _: Places) -> Iterator[Case]:
    """The state directory's disk fills up, or becomes read-only."""
    steps = points.places(ALWAYS[2:])
    down = points.places(points.WHILE_DOWN)
    while True:
        yield Case(
            "disk",
            (Blow("run", "STOP", draw.choice(steps)),),
            act="fill-disk",
            then=draw.choice(("", "KILL")),
            candidate=draw.choice(("", "refuted")),
        )
        yield Case(
            "disk",
            (Blow("run", "STOP", draw.choice(down)),),
            act="read-only",
            then=draw.choice(("", "KILL", "KILL")),
            candidate=draw.choice(("", "refuted")),
        )


def _syscalls(draw: random.Random, _: Places) -> Iterator[Case]:
    """The n-th call on one of the files that everything rests on kills, or fails as disks do."""
    most = {"fdatasync": 25, "fsync": 10, "pwrite64": 110, "write": 12, "rename": 4, "unlink": 3,
            "openat": 25}  # fmt: skip
    while True:
        if draw.random() < 0.1:
            yield Case("syscall", inject="fdatasync:SLOW:1+", candidate="refuted")
        call = draw.choice(list(most))
        fault = draw.choice(("KILL", "KILL", "EIO", "ENOSPC", "EROFS"))
        when = str(draw.randint(1, most[call])) + draw.choice(("", "+" if fault != "KILL" else ""))
        yield Case(
            "syscall",
            inject=f"{call}:{fault}:{when}",
            candidate=draw.choice(("task:0.1", "refuted")),
        )


def _power(draw: random.Random, _: Places) -> Iterator[Case]:
    """The power goes after any change that a run makes to its disk."""
    while True:
        yield Case("power", cut=f"{draw.randint(0, 10_000)}:{draw.choice((0, 1, 2, 3))}")


def _crowds(draw: random.Random, _: Places) -> Iterator[Case]:
    """Two to six runners at once, one of them killed perhaps."""
    steps = points.places(ALWAYS)
    while True:
        blows = (Blow("run", "KILL", draw.choice(steps)),) if draw.random() < 0.5 else ()
        yield Case("crowd", blows, crowd=str(draw.randint(2, 6)))


def _frozen(draw: random.Random, _: Places) -> Iterator[Case]:
    """A run, or its guardian, that stands still for ever."""
    steps = points.places(points.WHILE_DOWN)
    while True:
        for name in ("freeze", "freeze-guardian", "freeze-unguarded"):
            yield Case("frozen", (Blow("run", "STOP", draw.choice(steps)),), act=name)


MAKERS = {
    "pair": _pairs,
    "line": _places("line"),
    "opcode": _places("opcode"),
    "tree": _trees,
    "signal": _signals,
    "world": _world,
    "disk": _disks,
    "syscall": _syscalls,
    "power": _power,
    "crowd": _crowds,
    "frozen": _frozen,
}
