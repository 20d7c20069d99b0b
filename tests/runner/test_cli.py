"""The command line: one answer or one error object, the exit code of the table, nothing touched."""

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from runner import __version__, entry
from runner.journal import Journal

RUNNER = str(Path(sys.executable).with_name("runner"))
AT = "2026-11-03T00:00:00.000+01:00"
TOKEN = "123456789:AAabcdefghijklmnopqrstuvwxyz012345678"

CONFIG = """\
timezone = "Europe/Berlin"
state_dir = "{state}"
[[alerts.channel]]
kind = "file"
path = "{told}"
"""

JOB = """\
question = "Does it fit?"
[candidate]
kind = "llamacpp"
binary = "/opt/llama-server"
model = "/models/m.gguf"
port = 8081
context = 4096
[workload]
fill = [0.95]
[[claim]]
kind = "context"
tokens = 4096
"""


class Cli:
    """A box with a configuration, and the command line on it."""

    def __init__(self, room: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.room, self.state, self.told = room, room / "state", room / "told.txt"
        self.config = room / "runner.toml"
        self.config.write_text(CONFIG.format(state=self.state, told=self.told))
        self.jobs = room / "jobs"
        self.jobs.mkdir()
        self._capfd = capfd

    def __call__(self, *argv: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self._capfd.readouterr()
        try:
            code = entry.run(["--config", str(self.config), *argv])
        except SystemExit as ended:  # what argparse does
            code = int(ended.code or 0)
        said = self._capfd.readouterr()
        return code, said.out, said.err

    def json(self, *argv: str, code: int = 0) -> dict[str, Any]:
        """The one object that a verb answers with."""
        found, text, _ = self(*argv, "--json")
        assert found == code, text
        answer: dict[str, Any] = json.loads(text)
        return answer

    def error(self, *argv: str, code: int = 2) -> dict[str, Any]:
        """The error of a verb that cannot answer."""
        answer = self.json(*argv, code=code)
        assert set(answer) == {"error"}
        error: dict[str, Any] = answer["error"]
        assert {"code", "where", "message", "remedy"} <= set(error)
        assert error["code"] == code
        return error


@pytest.fixture
def cli(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line on an empty box."""
    for name in ("RUNNER_CONFIG", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    return Cli(tmp_path, capfd)


def a_run(state: Path, run: str = "20261103-0000-a", *, closed: bool = True) -> dict[str, Any]:
    """A run in the journal."""
    result = {
        "run": run,
        "job": "a",
        "outcome": "refused",
        "exit_code": 3,
        "headline": "SERVING, never touched · a REFUSED",
        "trigger": "manual",
        "started": AT,
        "ended": AT,
        "production": {"state": "serving", "identity": "same", "services": []},
        "checks": [{"id": "file.exists", "state": "fail", "message": "FAIL \x1b[32m"}],
        "claims": [],
        "measurements": {},
        "artifacts": {"candidate_log": str(state / "runs" / run / "candidate.log")},
    }
    with Journal.open(state) as journal:
        journal.begin(run, "a", "manual", {}, AT)
        journal.event(run, "stopping", service="llm")
        if closed:
            alert = {"first_line": "SERVING", "text": "SERVING\nmore", "kind": "refused", "at": AT}
            journal.close(
                run, "refused", 3, str(result["headline"]), result=result, alert=alert, ended=AT
            )
    return result


# Asking for nothing in particular


def test_the_version_is_printed_without_any_import_of_a_third_party() -> None:
    """So are recovery's verbs dispatched: a broken upgrade must not stop them."""
    program = (
        "import sys\nfrom runner.entry import run\nrun(['--version'])\n"
        "code = run(['status', '--json', '--state-dir', sys.argv[1]])\n"
        "bad = {'click', 'pydantic', 'structlog', 'httpx', 'rich', 'psutil'} & set(sys.modules)\n"
        "sys.exit(1 if bad else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "/nonexistent/state"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.stdout.startswith(f"runner {__version__}\n")
    assert done.returncode == 0, done.stderr


def test_the_help_is_grouped_and_names_the_exit_codes(cli: Cli) -> None:
    """By what a person is up to."""
    code, text, _ = cli("--help")
    assert code == 0
    places = [
        text.index(f"{title}:")
        for title in ("Tonight", "What happened", "When it breaks", "Set up")
    ]
    assert places == sorted(places)
    assert "10 production down" in text
    assert "129/130/137/143 interrupted" in " ".join(text.split())


def test_every_verb_has_a_help(cli: Cli) -> None:
    """And each of them that answers takes --json."""
    from runner.cli.app import VERBS

    for verb in VERBS:
        code, text, _ = cli(verb, "--help")
        assert code == 0
        assert "--json" in text or verb in {"alerts", "may-i"}


def test_without_a_verb_the_help_is_shown(cli: Cli) -> None:
    """It is what somebody wants who types the bare name; nothing was done, so it is no 0."""
    code, text, said = cli()
    assert (code, said) == (2, "")
    assert "Tonight:" in text
    assert cli("alerts")[0] == 2
    assert "--json" in cli.error()["message"]


def test_a_misspelt_verb_gets_a_guess(cli: Cli) -> None:
    """Exit 2, and nothing was touched."""
    code, _, said = cli("histor")
    assert code == 2
    assert "there is no verb `histor`; did you mean `history`?" in said


def test_an_error_in_usage_is_one_json_object_too(cli: Cli) -> None:
    """A program that calls us reads JSON in every case."""
    error = cli.error("show", "--bogus")
    assert "bogus" in error["message"]
    assert error["where"] == "runner show"
    assert cli.error("status", "--bogus")["where"] == "runner status"


@pytest.mark.parametrize(
    ("argv", "split"),
    [
        ([], ([], None, [])),
        (["list"], ([], "list", [])),
        (["--config", "f", "status", "--json"], (["--config", "f"], "status", ["--json"])),
        (["-v", "--config=f", "run", "j"], (["-v", "--config=f"], "run", ["j"])),
    ],
)
def test_the_verb_is_found_behind_the_options(argv: list[str], split: object) -> None:
    """`--config FILE` comes before it."""
    assert entry.split(argv) == split


# Configuration


def test_a_missing_configuration_names_where_it_was_looked_for(cli: Cli) -> None:
    """One that was asked for by name is not replaced by another."""
    cli.config.unlink()
    for verb in (["list"], ["history"], ["run", "a"], ["check"], ["show"], ["cancel"]):
        error = cli.error(*verb)
        assert error["where"] == str(cli.config)
        assert "runner doctor" in error["remedy"]


def test_a_broken_configuration_is_told_with_its_line(cli: Cli) -> None:
    """Every problem of the file is in `problems`."""
    cli.config.write_text('timezone = "UTC"\nbroken\n')
    error = cli.error("run", "a")
    assert error["where"] == f"{cli.config}:2"
    assert error["message"].startswith("is not TOML")


def test_an_unknown_key_comes_with_a_suggestion(cli: Cli) -> None:
    """On every line of its own for people."""
    cli.config.write_text('timezon = "UTC"\nstat_dir = "/x"\n')
    error = cli.error("check")
    assert "did you mean `timezone`?" in error["message"]
    assert len(error["problems"]) == 2
    code, _, said = cli("check")
    assert code == 2
    assert f"{cli.config}:2: stat_dir: unknown key; did you mean `state_dir`?" in said


def test_a_configuration_of_a_newer_version_is_refused(cli: Cli) -> None:
    """Naming both versions."""
    cli.config.write_text("version = 7\n")
    error = cli.error("run", "a")
    assert "is 7, written for a newer runner" in error["message"]
    assert "understands version 1" in error["message"]


def test_the_configuration_may_be_named_after_the_verb_too(cli: Cli, tmp_path: Path) -> None:
    """People write it where it comes to mind."""
    other = tmp_path / "other.toml"
    other.write_text(f'state_dir = "{tmp_path}/other"\n')
    a_run(tmp_path / "other")
    assert cli.json("history")["runs"] == []
    assert len(cli.json("history", "--config", str(other))["runs"]) == 1


# What happened


def test_history_and_show_of_an_empty_box(cli: Cli) -> None:
    """No run yet is an answer for one, and an error for the other."""
    assert cli.json("history") == {"runs": []}
    assert cli("history")[1] == "no run yet\n"
    assert cli.error("show")["message"] == "there is no run yet"
    assert not cli.state.exists()


def test_show_prints_the_whole_object_and_history_the_short_one(cli: Cli) -> None:
    """The latest, where none is named."""
    result = a_run(cli.state)
    assert cli.json("show") == result
    assert cli.json("show", "20261103") == result
    (short,) = cli.json("history", "a")["runs"]
    assert "checks" not in short
    assert cli.json("history", "b")["runs"] == []
    assert "no run is called `x`" in cli.error("show", "x")["message"]


def test_terminal_escapes_in_names_are_shown_escaped(cli: Cli) -> None:
    """In every text; JSON escapes them by itself."""
    a_run(cli.state)
    for verb in ("show", "history"):
        _, text, _ = cli(verb)
        assert "\x1b" not in text
    assert r"FAIL \x1b[32m" in cli("show")[1]


def test_logs_shows_the_candidate_s_log(cli: Cli) -> None:
    """A last line without its end too."""
    a_run(cli.state)
    log = cli.state / "runs" / "20261103-0000-a" / "candidate.log"
    log.parent.mkdir()
    log.write_bytes(b"loading\nready \x1b[1m\nhalf")
    assert cli("logs")[1] == "loading\nready \\x1b[1m\nhalf\n"
    assert cli("logs", "--follow")[1] == "loading\nready \\x1b[1m\nhalf\n"
    answer = cli.json("logs")
    assert answer["lines"][0] == "loading"
    assert [event["name"] for event in answer["events"]] == ["stopping", "ended"]


def test_logs_tells_what_the_run_did_where_no_candidate_ran(cli: Cli) -> None:
    """A refused run has no candidate, and still a story."""
    a_run(cli.state)
    lines = cli("logs")[1].splitlines()
    assert lines[0].endswith(" stopping service=llm")
    assert lines[1].endswith(" ended outcome=refused exit_code=3")


def test_logs_follows_a_run_until_it_has_ended(cli: Cli) -> None:
    """Whatever is written meanwhile is shown, and the end of the run ends it."""
    result = a_run(cli.state, closed=False)
    log = cli.state / "runs" / result["run"] / "candidate.log"
    log.parent.mkdir()
    log.write_text("loading\n")
    following = subprocess.Popen(
        [RUNNER, "--config", str(cli.config), "logs", "-f"], stdout=subprocess.PIPE, text=True
    )
    assert following.stdout is not None
    assert following.stdout.readline() == "loading\n"
    with log.open("a") as file:
        file.write("ready\n")
    assert following.stdout.readline() == "ready\n"
    with log.open("a") as file:
        file.write("bye\n")
    with Journal.open(cli.state) as journal:
        journal.close(result["run"], "refused", 3, "x", result=result, alert=None, ended=AT)
    rest, _ = following.communicate(timeout=30)
    assert (rest, following.returncode) == ("bye\n", 0)


def test_a_run_that_goes_on_can_be_shown(cli: Cli) -> None:
    """What is known of it so far."""
    a_run(cli.state, closed=False)
    assert cli.json("show")["outcome"] is None
    assert "still running" in cli("show")[1]
    assert cli.json("history")["runs"][0]["job"] == "a"
    assert "running" in cli("history")[1]


def test_list_reads_every_job_it_can(cli: Cli) -> None:
    """One broken file does not hide the others."""
    (cli.jobs / "a.toml").write_text(JOB)
    (cli.jobs / "b.toml").write_text("question = \n")
    jobs = {job["name"]: job for job in cli.json("list")["jobs"]}
    assert jobs["a"]["question"] == "Does it fit?"
    assert jobs["a"]["problem"] is None
    assert jobs["b"]["problem"]["line"] == 1
    _, text, _ = cli("list")
    assert "Does it fit?" in text
    assert "broken" in text


@pytest.mark.parametrize("name", ["a/b", "../a", "a.toml", ""])
def test_a_job_name_with_a_slash_opens_no_other_file(cli: Cli, name: str) -> None:
    """A job is opened by its exact name, in the one directory for jobs."""
    (cli.room / "a.toml").write_text(JOB)
    error = cli.error("run", name)
    assert "the name of a job" in error["message"]
    assert not (cli.state / "runs").exists() or not list((cli.state / "runs").iterdir())


# Alerts


def test_a_test_alert_goes_through_every_channel_and_is_remembered(cli: Cli) -> None:
    """The proof that somebody would be told."""
    (channel,) = cli.json("alerts", "test")["channels"]
    assert (channel["kind"], channel["reached"]) == ("file", True)
    assert "alerts of runner arrive here" in cli.told.read_text()
    (sent,) = cli.json("alerts", "list")["alerts"]
    assert sent["kind"] == "test"
    assert sent["sent"].endswith(("+01:00", "+02:00"))
    with Journal.open(cli.state, read_only=True) as journal:
        assert journal.last_delivery() is not None


def test_a_channel_that_fails_is_named_and_nothing_is_proven(cli: Cli) -> None:
    """Exit 2: it is the configuration that wants mending."""
    cli.told.mkdir()
    (channel,) = cli.json("alerts", "test", code=2)["channels"]
    assert channel["reached"] is False
    assert cli.json("alerts", "list")["alerts"] == []
    assert cli("alerts", "test")[0] == 2


def test_no_channel_at_all_is_an_error_of_configuration(cli: Cli) -> None:
    """A test that reaches nobody must not look like one that did."""
    cli.config.write_text(f'state_dir = "{cli.state}"\n')
    assert "no channel is configured" in cli.error("alerts", "test")["message"]


def test_flush_delivers_what_stands_in_the_outbox(cli: Cli) -> None:
    """Whenever it would have been due."""
    a_run(cli.state)
    with Journal.open(cli.state) as journal:
        journal.failed(1, "502", 9e9)
    (row,) = cli.json("alerts", "list", "--unsent")["alerts"]
    assert (row["tries"], row["error"]) == (1, "502")
    assert cli.json("alerts", "flush")["sent"] == 1
    assert "SERVING" in cli.told.read_text()
    assert cli.json("alerts", "flush") == {"sent": 0, "failed": 0, "unsent": 0, "errors": []}
    assert cli("alerts", "list", "--unsent")[1] == "no alerts\n"


def test_what_cannot_be_delivered_stays_with_the_reason(cli: Cli) -> None:
    """With its age in plain sight."""
    a_run(cli.state)
    cli.told.mkdir()
    answer = cli.json("alerts", "flush", code=2)
    assert answer["unsent"] == 1
    assert answer["errors"]
    code, text, _ = cli("alerts", "list")
    assert code == 0
    assert "unsent, 1 tries" in text


# When it breaks


def test_undrain_says_what_it_was_drained_for(cli: Cli) -> None:
    """And that it was not, where it was not."""
    with Journal.open(cli.state) as journal:
        journal.drain("restore failed")
    answer = cli.json("undrain", "--reason", "new disk")
    assert answer["undrained"] is True
    assert answer["was"]["reason"] == "restore failed"
    assert cli.json("undrain", "--reason", "again")["undrained"] is False
    assert "reason" in cli.error("undrain")["message"].lower()


def test_release_where_nothing_is_owed_says_so(cli: Cli) -> None:
    """It is no error."""
    assert cli.json("release", "--reason", "mine now")["released"] is False


def test_status_is_reached_through_the_app_as_well(cli: Cli) -> None:
    """The entry point takes it first; the answer is the same."""
    assert "production" in cli.json("status")


# Set up


def test_schema_prints_both_or_one(cli: Cli) -> None:
    """For editors."""
    both = cli.json("schema")
    assert set(both) == {"runner", "job"}
    assert cli.json("schema", "job") == both["job"]
    assert both["runner"]["properties"]["timezone"]
    assert json.loads(cli("schema", "runner")[1])["additionalProperties"] is False


def test_doctor_shows_which_configuration_is_used(cli: Cli) -> None:
    """And what a run would stumble over."""
    (cli.jobs / "a.toml").write_text(JOB)
    (cli.jobs / "b.toml").write_text("question = \n")
    answer = cli.json("doctor", code=3)
    assert answer["config"] == str(cli.config)
    assert answer["looked"] == [{"rule": "--config", "path": str(cli.config), "there": True}]
    states = {check["id"]: check["state"] for check in answer["checks"]}
    assert states["self.config"] == "pass"
    assert states["self.job"] == "fail"
    assert states["self.alerts"] == "warn"
    assert "used" in cli("doctor")[1]


def test_doctor_without_or_with_a_broken_configuration_says_what_is_wrong(cli: Cli) -> None:
    """It must work above all when nothing else does."""
    cli.config.write_text("timezon = 1\n")
    answer = cli.json("doctor", code=2)
    assert "did you mean `timezone`" in answer["checks"][0]["found"]
    cli.config.unlink()
    answer = cli.json("doctor", code=2)
    assert answer["config"] is None


# A hostile world


def test_a_fault_of_ours_is_exit_70_and_one_object(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the traceback on standard error, for the report of the bug."""
    monkeypatch.setenv("PATH", os.environ["PATH"])
    with Journal.open(cli.state) as journal:
        journal._db.execute(
            "INSERT INTO runs (run, job, trigger, started, ident, summary) VALUES ('r', 'a', 'm', 't', '{}', 'no json')"
        )
    error = cli.error("history", code=70)
    assert error["message"].startswith("a fault of the runner: JSONDecodeError")
    assert "Traceback" in cli("history")[2]


def test_a_newer_journal_is_a_readable_error(cli: Cli) -> None:
    """With what to do about it."""
    with Journal.open(cli.state) as journal:
        journal._db.execute("PRAGMA user_version=99")
    error = cli.error("history")
    assert "written by a newer runner" in error["message"]
    assert error["remedy"]


@pytest.mark.parametrize("stdout", ["/dev/full", "closed pipe", "closed"])
def test_an_output_that_cannot_be_written_changes_no_exit_code(cli: Cli, stdout: str) -> None:
    """A run that was refused is refused, whoever stopped listening."""
    a_run(cli.state)
    command = [RUNNER, "--config", str(cli.config), "show", "--json"]
    target = os.open("/dev/full", os.O_WRONLY)
    if stdout == "closed pipe":
        os.close(target)
        reader, target = os.pipe()
        os.close(reader)
    if stdout == "closed":
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    done = subprocess.run(command, stdout=target, stderr=subprocess.PIPE, check=False, timeout=30)
    os.close(target)
    assert (done.returncode, done.stderr) == (0, b"")


_AS_ANOTHER = """
import os, sys
import runner.cli.app, runner.cli.breaks, runner.cli.tonight, runner.look, runner.run
import runner.recovery.command, runner.settings
from runner.entry import run
os.setgroups([])
os.setresgid(1234, 1234, 1234)
os.setresuid(1234, 1234, 1234)
sys.exit(run(sys.argv[1:]))
"""


def as_another(cli: Cli, *argv: str) -> tuple[int, dict[str, Any]]:
    """The verb as a user who owns nothing here; everything is imported before the change."""
    done = subprocess.run(
        [sys.executable, "-c", _AS_ANOTHER, "--config", str(cli.config), *argv, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    error: dict[str, Any] = json.loads(done.stdout)["error"]
    return done.returncode, error


@pytest.fixture
def open_room(cli: Cli) -> Cli:
    """A box whose configuration anybody may read, with a state directory of nobody's."""
    if os.geteuid() != 0:
        pytest.skip("only root can become other users")
    for parent in (cli.room, *cli.room.parents):
        if parent.owner() == "root" and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o755)
    a_run(cli.state)
    for path in (cli.state, *cli.state.rglob("*")):
        os.chown(path, 65534, 65534)
    return cli


@pytest.mark.parametrize("verb", [["undrain", "--reason", "x"], ["recover"], ["status"]])
def test_root_acts_as_the_owner_of_the_state_directory(open_room: Cli, verb: list[str]) -> None:
    """A file of root's would lock the owner out of their own box; no recipe is run as root."""
    done = subprocess.run(
        [RUNNER, "--config", str(open_room.config), *verb, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert "error" not in json.loads(done.stdout)
    assert {path.stat().st_uid for path in open_room.state.rglob("*")} == {65534}


@pytest.mark.parametrize("verb", [["undrain", "--reason", "x"], ["recover"]])
def test_another_user_is_told_whose_box_it_is(open_room: Cli, verb: list[str]) -> None:
    """Exit 2 naming the owner; nothing was touched."""
    code, error = as_another(open_room, *verb)
    assert code == 2
    assert error["message"] == "belongs to nobody, and you are uid 1234"
    assert "as nobody" in error["remedy"]


def test_an_unwritable_state_directory_is_exit_2_with_what_to_do(open_room: Cli) -> None:
    """The incident-free way to learn of it: before anything was touched."""
    closed = open_room.room / "closed"
    closed.mkdir(mode=0o755)
    open_room.config.write_text(f'state_dir = "{closed}/state"\n')
    code, error = as_another(open_room, "undrain", "--reason", "x")
    assert code == 2
    assert "Permission denied" in error["message"]
    assert "belongs to root" in error["message"]
    assert "set state_dir" in error["remedy"]


@pytest.mark.parametrize("verb", ["run", "check"])
def test_a_run_cannot_begin_where_it_could_write_nothing_down(open_room: Cli, verb: str) -> None:
    """Exit 2 before anything was looked at, let alone stopped."""
    (open_room.jobs / "a.toml").write_text(JOB)
    closed = open_room.room / "closed"
    closed.mkdir(mode=0o755)
    open_room.config.write_text(f'state_dir = "{closed}/state"\n')
    code, error = as_another(open_room, verb, "a")
    assert code == 2
    assert "Permission denied" in error["message"]
    assert "belongs to root" in error["message"]


@pytest.fixture
def full_disk(cli: Cli) -> Iterator[Cli]:
    """A box whose state directory lies on a file system without a free byte."""
    cli.state.mkdir()
    small = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", str(cli.state)]
    if subprocess.run(small, check=False, stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("needs the right to mount a small file system")
    try:
        with (cli.state / "filler").open("wb", buffering=0) as file, suppress(OSError):
            while file.write(b"x" * 4096):
                pass
        yield cli
    finally:
        away = ["umount", "--lazy", str(cli.state)]
        subprocess.run(away, check=True)


@pytest.mark.parametrize("verb", [["run", "a"], ["check", "a"], ["undrain", "--reason", "x"]])
def test_a_full_disk_is_exit_2_with_what_to_do(full_disk: Cli, verb: list[str]) -> None:
    """A run that cannot be written down must not begin."""
    (full_disk.jobs / "a.toml").write_text(JOB)
    error = full_disk.error(*verb)
    told = f"{error['message']} {error['remedy']}".lower()
    assert "full" in told or "no space left" in told


def test_no_verb_shows_a_token(cli: Cli) -> None:
    """Not in text, JSON, journal or traceback, whatever goes wrong on the way (P10)."""
    secret = cli.room / "token"
    secret.write_text(TOKEN)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    cli.config.write_text(
        f'state_dir = "{cli.state}"\n[[alerts.channel]]\nkind = "telegram"\nchat_id = 1\n'
        f'token = {{ file = "{secret}" }}\napi_base = "http://127.0.0.1:{port}"\n'
    )
    a_run(cli.state)
    said = [cli("-vv", *verb.split()) for verb in ("alerts test", "alerts flush", "alerts list")]
    said += [cli("-vv", verb, "--json") for verb in ("doctor", "show", "status")]
    seen = "".join(text for _, *texts in said for text in texts)
    kept = b"".join(path.read_bytes() for path in cli.state.rglob("*") if path.is_file())
    assert "telegram" in seen
    assert TOKEN.partition(":")[2] not in seen
    assert TOKEN.partition(":")[2].encode() not in kept


def test_the_state_directory_lets_others_reach_only_what_is_public(open_room: Cli) -> None:
    """0711, and 0755 for public/."""
    modes = {
        p.name: stat.S_IMODE(p.stat().st_mode)
        for p in (open_room.state, *open_room.state.iterdir())
    }
    assert modes["state"] == 0o711
    assert modes["public"] == 0o755
    assert modes["runs"] == 0o700
