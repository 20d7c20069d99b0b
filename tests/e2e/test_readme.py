"""The commands, files and verbs that README.md and the how-to pages show: they work as they stand.

A block marked `sh` holds commands, one a line. Each is executed in a copy of a checkout with a demo
box on the stand-in server, or it stands in ELSEWHERE with the reason why not here.
"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from jobs.load import load_job
from runner import entry
from runner.cli.app import VERBS
from runner.demo import parts, servers
from runner.demo.box import Box
from runner.settings import load_settings
from tests.e2e.night import Ran

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to"
PAGES = (
    ROOT / "README.md",
    *(HOW_TO / f"{name}.md" for name in ("install", "schedule", "shared-box")),
)
INSTALLED = (
    "changes the machine as root: tests/systemd/test_install.py does it on a machine of its own"
)

# What is not executed here, by how the command begins.
ELSEWHERE = {
    "make demo": "takes real servers: tests/e2e/test_demo.py plays it",
    "runner demo --incident": "takes real servers: tests/e2e/test_demo.py plays it",
    "make lint": "runs this project's own checks: CI does",
    "make test": "would run this test again",
    "make install": INSTALLED,
    "ln ": INSTALLED,
    "useradd ": INSTALLED,
    "groupadd ": INSTALLED,
    "usermod ": INSTALLED,
    "install -D ": INSTALLED,
    "runner install-units --write": INSTALLED,
    "systemctl ": INSTALLED,
}


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page that are marked with this language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Every command that the pages show, in their order, each once; without its comment."""
    lines = (line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines())
    return list(dict.fromkeys(line.partition(" # ")[0].strip() for line in lines if line.strip()))


def elsewhere(command: str) -> str | None:
    """Why a command is not executed here, if it is not."""
    plain = command.replace(".venv/bin/", "")
    return next((why for begin, why in ELSEWHERE.items() if plain.startswith(begin)), None)


class Checkout:
    """A folder that looks like a checkout after `make demo`, and a shell in it."""

    def __init__(self, folder: Path) -> None:
        self.box = Box(folder / ".demo", parts.stand_in("these tests want it quick"))
        self.folder = folder
        self._ended: dict[str, Ran] = {}

    def make(self) -> None:
        """The box, with production up, one run behind it, and the schedule of the page."""
        self.box.make(0.02, serving=False)
        (self.folder / ".venv").symlink_to(sys.prefix)
        (self.folder / "old").mkdir()
        (schedule,) = blocks(HOW_TO / "schedule.md", "toml")
        with self.box.config.open("a") as file:
            file.write(f"\n{schedule}")
        servers.start_production(self.box)
        for command in ("runner run 200k-mtp", "runner reservations"):  # others ask about these
            ran = self.shell(command)
            assert ran.code == 0, str(ran)

    def shell(self, command: str) -> Ran:
        """The command as a person types it, and how it ended; once, however often it is asked."""
        if command not in self._ended:
            ran = subprocess.run(
                ["/bin/bash", "-c", command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
                cwd=self.folder,
                env={
                    **os.environ,
                    "PATH": f"{self.folder}/.venv/bin:{os.environ['PATH']}",
                    "RUNNER_CONFIG": str(self.box.config),
                    "dir": str(self.folder / "old"),
                },
            )
            self._ended[command] = Ran(ran.returncode, ran.stdout, ran.stderr)
        return self._ended[command]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """One checkout for all commands, as a reader has one."""
    found = Checkout(tmp_path_factory.mktemp("checkout"))
    try:
        found.make()
        yield found
    finally:
        servers.end(found.box)


@pytest.mark.parametrize("command", [one for one in commands() if elsewhere(one) is None])
def test_a_command_that_the_pages_show_works(checkout: Checkout, command: str) -> None:
    """Typed as it stands there it ends well, and says something."""
    ran = checkout.shell(command)
    assert ran.code == 0, str(ran)
    assert ran.out.strip(), str(ran)
    assert "Traceback" not in ran.err


def test_whoever_may_delete_has_deleted(checkout: Checkout) -> None:
    """The line for other people's scripts does what it says."""
    checkout.shell('runner may-i delete "$dir" && rm -r "$dir"')
    assert not (checkout.folder / "old").exists()


def test_no_reason_outlives_its_command() -> None:
    """Each entry of the table is about a command that the pages still show."""
    shown = [command.replace(".venv/bin/", "") for command in commands()]
    assert [one for one in ELSEWHERE if not any(cmd.startswith(one) for cmd in shown)] == []
    named = {word for why in ELSEWHERE.values() for word in re.findall(r"tests/\S+\.py", why)}
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    "target", sorted({cmd.split()[1] for cmd in commands() if cmd.startswith("make ")})
)
def test_a_target_that_the_pages_show_is_there(target: str) -> None:
    """`make` knows it; asked for its plan, so nothing is done."""
    ran = subprocess.run(
        [shutil.which("make") or "make", "--dry-run", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


# -- files ----------------------------------------------------------------------------------------


@pytest.fixture
def shown_box(tmp_path: Path) -> Path:
    """README's runner.toml and job where they lie in a folder of the test."""
    config, job = blocks(ROOT / "README.md", "toml")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "runner.toml").write_text(config)
    (tmp_path / "jobs" / "200k-mtp.toml").write_text(job)
    return tmp_path


def test_the_files_of_the_readme_are_read(shown_box: Path) -> None:
    """A reader who copies both has no mistake in them, and the job starts from that service."""
    settings = load_settings(shown_box / "runner.toml")
    job = load_job(shown_box / "jobs", "200k-mtp")
    assert settings.service(job.candidate.like or "") is not None
    assert Path(settings.jobs_dir) == shown_box / "jobs"
    assert {claim.kind for claim in job.claims} == {"speculation", "context", "throughput"}


def test_the_configuration_of_the_readme_has_ten_lines() -> None:
    """It says so."""
    config, _ = blocks(ROOT / "README.md", "toml")
    assert len([line for line in config.splitlines() if line and not line.startswith("[")]) == 8
    assert len([line for line in config.splitlines() if line]) == 10


@pytest.mark.parametrize("page", ["install", "schedule"])
def test_the_configuration_of_a_page_is_read(page: str, tmp_path: Path) -> None:
    """Whole, or pasted below the rest."""
    text, *_ = blocks(HOW_TO / f"{page}.md", "toml")
    (tmp_path / "runner.toml").write_text(text)
    (row,) = load_settings(tmp_path / "runner.toml").schedule
    assert row.job == "200k-mtp"


def test_a_production_in_a_container_is_read(tmp_path: Path) -> None:
    """In place of the page's own [[production]]."""
    _, text = blocks(HOW_TO / "install.md", "toml")
    (tmp_path / "runner.toml").write_text(text)
    (service,) = load_settings(tmp_path / "runner.toml").production
    assert service.supervisor.kind == "command"


def test_each_line_of_the_readme_is_explained() -> None:
    """The table under runner.toml has every key that stands there, in its order, and no other."""
    text = (ROOT / "README.md").read_text()
    config, _ = blocks(ROOT / "README.md", "toml")
    rows = re.findall(
        r"^\| `(\S+)` \| ", text.partition("| line |")[2].partition("\n\n")[0], re.MULTILINE
    )
    lines = re.findall(r"^(\S+)", config, re.MULTILINE)
    assert rows == lines
    assert tomllib.loads(config)


# -- verbs and options ----------------------------------------------------------------------------


@cache
def help_of(verb: str) -> str:
    """What `--help` says of a verb, or of a verb of a verb."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        entry.run([*verb.split(), "--help"])
    return said.getvalue()


def mentions() -> Iterator[tuple[str, str]]:
    """Every `runner …` that a text of ours shows to a person: (where, the command)."""
    texts = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "Makefile"]
    for folder in ("docs", "deploy", "runner", "jobs", "preflight", "alerts"):
        texts += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in texts:
        if path.suffix in {".pyc", ".gz"}:
            continue
        text = path.read_text()
        found = re.findall(r"`+(?:\.venv/bin/)?runner ([a-z][^`\n]*)`", text)
        if path.suffix == ".md":
            found += re.findall(
                r"^(?:\.venv/bin/)?runner ([a-z].*?)(?: # .*)?$", text, re.MULTILINE
            )
        for command in found:
            yield str(path.relative_to(ROOT)), command.replace("\\", "")


def unknown(command: str) -> str | None:
    """The verb or option in it that `--help` does not know."""
    words = command.partition(" && ")[0].split()
    verb = words[0]
    if verb not in {*VERBS, "restore", "guardian"}:
        return verb
    said = help_of(verb)
    sub = words[1] if len(words) > 1 and words[1].isalpha() else ""
    if sub and re.search(rf"^  {sub} ", said, re.MULTILINE):
        said = help_of(f"{verb} {sub}")
    options = (re.match(r"--?[a-zA-Z][a-z-]*", word) for word in words[1:])
    given = [option.group() for option in options if option]
    return next((one for one in given if not re.search(rf"{one}(?![a-z-])", said)), None)


def test_every_verb_and_option_that_we_show_exists() -> None:
    """In pages, examples, units, help and remedies: nobody is sent to a command that is not there."""
    found = list(mentions())
    assert len(found) > 100
    wrong = [(where, command) for where, command in found if unknown(command) is not None]
    assert wrong == []


def test_a_verb_that_does_not_exist_would_be_seen() -> None:
    """The test above can fail."""
    assert unknown("reservation") == "reservation"
    assert unknown("run JOB --dryrun") == "--dryrun"
    assert unknown("alerts test --loud") == "--loud"
    assert unknown("run 200k-mtp --dry-run") is None
