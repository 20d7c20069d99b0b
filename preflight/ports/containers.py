"""Ports that containers publish without a listener: a free port in the tables need not be free.

An engine may hand packets on inside the kernel (DNAT), where no socket table shows them (moby
#28589, nerdctl#4000). Asked are the engines themselves; a connection is tried only where nobody
listens and no engine tells. It must not know what the port is for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, NamedTuple

from preflight.box import Box, Ran
from preflight.check import Check, Deadline, Explained
from preflight.ports.addresses import overlaps
from preflight.verdict import BlastRadius, State, Verdict
from preflight.wording import clipped, named

_ENGINES = ("docker", "podman", "nerdctl")
_LIST = ("ps", "--no-trunc", "--format", "{{json .}}")
_KEEPERS = ("containerd-shim", "conmon")
"""How the process is called that an engine leaves beside each of its containers."""
_PUBLISHED = re.compile(
    r"(?P<host>\[?[0-9a-fA-F:.]*\]?):(?P<first>\d+)(?:-(?P<last>\d+))?->[\d-]+/tcp"
)
_ENGINE_WITHIN_S = 5.0
_CONNECT_WITHIN_S = 0.5


class Publication(NamedTuple):
    """One container and a span of ports of this host that lead to it."""

    container: str
    image: str
    host: str
    first: int
    last: int


class Published(Check):
    """A port that has to be free is published by no container, and held by nobody outside."""

    id: ClassVar[str] = "port.docker"
    radius: ClassVar[BlastRadius] = BlastRadius.PORTS
    explains: ClassVar[tuple[Explained, ...]] = (
        Explained(
            "port.docker",
            reads="whether containers run (their shims in the table of processes), and then "
            "`docker ps`, `podman ps` and `nerdctl ps`; where none of them tells, one connection to "
            "the port on which nobody listens",
            passes="no container runs, none publishes the port, or published ports have a listener "
            "each (docker-proxy) and this one has none",
            fails="a container publishes the port inside the kernel; a connection is taken although "
            "nobody listens",
            unknown="containers run, and no engine tells this user what they publish",
            skipped="a listener holds the port: port.owner tells who",
            remedies=(
                "docker ps --filter publish=PORT, then stop that container or set another port",
                "let the runner's user ask the engine (group docker)",
            ),
        ),
    )

    kind: Literal["published"] = "published"
    port: int
    host: str = "127.0.0.1"
    deadline_s: float = 10.0

    @property
    def subject(self) -> str:
        """The address that is asked about."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def look(self, box: Box) -> Verdict:
        """Engines that run containers are asked; a machine without any costs nothing."""
        time = Deadline(self.deadline_s)
        rows = box.listeners(self.port).rows
        if any(overlaps(row.address, self.host, only6=row.only6) for row in rows):
            return self._says(State.SKIPPED, "a listener holds it: port.owner tells who")
        table = box.table()
        shims = [one for one in table if one.comm.startswith(_KEEPERS)]
        if shims:
            return self._among(box, time, proxied=any(one.comm == "docker-proxy" for one in table))
        (version,) = box.texts(["/proc/version"], within=time.left())
        if "microsoft" in version.text.lower() and self._taken(box, time):
            return self._outside("Windows may hold it")
        return self._says(State.PASS, "no container runs here")

    def _among(self, box: Box, time: Deadline, *, proxied: bool) -> Verdict:
        """Containers run: what do they publish?"""
        refused: list[str] = []
        told = False
        for engine in _ENGINES:
            ran = box.run([engine, *_LIST], within=min(_ENGINE_WITHIN_S, time.left()))
            if ran.fault == "ENOENT":
                continue
            if ran.code != 0:
                refused.append(f"{engine}: {clipped(ran.said or ran.last_line, 120)}")
                continue
            told = True
            for one in publications(ran):
                if one.first <= self.port <= one.last and overlaps(one.host, self.host):
                    return self._by(engine, one)
        if told and not refused:
            return self._says(State.PASS, "no container publishes it")
        if self._taken(box, time):
            return self._outside("a container that no engine tells of?")
        evidence = tuple(refused)
        if proxied:
            found = "free: containers here have a listener for each port they publish"
            return self._says(State.PASS, found, evidence=evidence)
        why = named(refused) or "neither docker nor podman nor nerdctl can be found"
        return self._says(
            State.UNKNOWN,
            f"containers run here, and what they publish is not told ({why})",
            remedy="let this user ask the engine (group docker), or accept port.docker with a reason",
            evidence=evidence,
        )

    def _taken(self, box: Box, time: Deadline) -> bool:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - asked, not bound
        return box.answered(host, self.port, within=min(_CONNECT_WITHIN_S, time.left()))

    def _outside(self, guess: str) -> Verdict:
        return self._says(
            State.FAIL,
            f"nobody listens here, and yet a connection is taken: {guess}",
            remedy="set another port, or find out who answers there",
        )

    def _by(self, engine: str, one: Publication) -> Verdict:
        return self._says(
            State.FAIL,
            f"{engine} container {one.container} ({one.image}) publishes it without a listener",
            remedy=f"ask whose it is: {engine} ps --filter publish={self.port}; or set another port",
        )

    def _says(
        self, state: State, found: str, *, remedy: str = "", evidence: tuple[str, ...] = ()
    ) -> Verdict:
        return self.says(state, found, wanted="nobody there", remedy=remedy, evidence=evidence)


def publications(ran: Ran) -> Iterator[Publication]:
    """What `ps --format '{{json .}}'` of docker, podman or nerdctl tells of TCP ports."""
    for row in _rows(ran.out):
        names = row.get("Names")
        name = ",".join(map(str, names)) if isinstance(names, list) else str(names or row.get("Id"))
        image, ports = str(row.get("Image", "")), row.get("Ports")
        if isinstance(ports, str):
            for found in _PUBLISHED.finditer(ports):
                first = int(found["first"])
                host = found["host"].strip("[]") or "0.0.0.0"  # noqa: S104 - read, not bound
                yield Publication(name, image, host, first, int(found["last"] or first))
        for port in ports if isinstance(ports, list) else ():
            known = port if isinstance(port, dict) else {}
            begins = known.get("host_port")
            if isinstance(begins, int) and known.get("protocol", "tcp") == "tcp":
                host = str(known.get("host_ip") or "0.0.0.0")  # noqa: S104 - read, not bound
                last = begins + int(known.get("range") or 1) - 1
                yield Publication(name, image, host, begins, last)


def _rows(text: str) -> Iterator[dict[str, Any]]:
    """One object a line, or all of them in one list."""
    for line in text.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        yield from (
            one for one in (said if isinstance(said, list) else [said]) if isinstance(one, dict)
        )
