"""What can happen to a run, as one line of text each: a case that failed is played again from it.

    pair run:KILL@point/runner.night.Night._restore/enter#1 guardian:KILL@point/… candidate=setsid

The first word names the layer; then who is hit by what and where; then how the box is shaped.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SHAPES = (
    "candidate", "production", "services", "act", "then", "inject", "home", "crowd", "timers",
    "cut", "env",
)  # fmt: skip


@dataclass(frozen=True)
class Blow:
    """Who is hit (run, guardian, recover), by which signal, and where."""

    who: str
    what: str
    at: str

    def __str__(self) -> str:
        return f"{self.who}:{self.what}@{self.at}"


@dataclass(frozen=True)
class Case:
    """One case. `candidate` and `production` are flags of the server, `act` is what happens to the
    box while the run stands still at its blow, and `then` the signal that the run gets instead of
    going on. `inject` is a fault of a system call, as call:fault:when; `home` is "none" where no
    cgroup can be made; `crowd` is how many runners start at once, `timers` how many
    recoveries when the run has ended, `services` how many services production has; `cut` is where the power goes,
    as call:seed; `env` is "proxy" or "full-log", an environment that misleads.
    """

    layer: str
    blows: tuple[Blow, ...] = ()
    candidate: str = ""
    production: str = ""
    services: str = ""
    act: str = ""
    then: str = ""
    inject: str = ""
    home: str = ""
    crowd: str = ""
    timers: str = ""
    cut: str = ""
    env: str = ""

    def __str__(self) -> str:
        shaped = [f"{name}={said}" for name in SHAPES if (said := getattr(self, name))]
        return " ".join([self.layer, *map(str, self.blows), *shaped])

    @classmethod
    def parse(cls, text: str) -> Case:
        """The case that this line says. Raises ValueError."""
        layer, *words = text.split()
        blows, shaped = [], {}
        for word in words:
            name, sign, said = word.partition("=")
            if sign and name in SHAPES:
                shaped[name] = said
                continue
            who, _, rest = word.partition(":")
            what, _, at = rest.partition("@")
            if not at:
                raise ValueError(f"{word}: neither who:SIGNAL@place nor one of {SHAPES}")
            blows.append(Blow(who, what, at))
        return cls(layer, tuple(blows), **shaped)

    def blow(self, who: str) -> Blow | None:
        """What hits this process first."""
        return next((blow for blow in self.blows if blow.who == who), None)


@dataclass
class Played:
    """What a case came to."""

    case: Case
    violations: list[str] = field(default_factory=list)
    kills: int = 0
    seconds: float = 0.0
    reaction: float | None = None
    """Seconds from the kill of the run to the start of production."""
    guarded: bool = False
    """Whether its guardian lived then."""
    outcome: str = ""
    missed: bool = False
    """A blow was to hit the run, and the run never came to that place."""
