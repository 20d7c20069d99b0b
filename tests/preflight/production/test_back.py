"""The way back: what a restart of production needs is there, or nothing is stopped."""

import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from preflight.box import TIMEOUT, Me, Unit
from preflight.linux import proc
from preflight.linux.box import LinuxBox
from preflight.production.back import WayBack, way_back
from preflight.rings import Gate, gate, look
from preflight.verdict import State, Verdict
from tests.fakes import UID, FakeBox, a_directory, a_file, a_process, a_program, missing
from tests.fakes_host import a_unit

MODEL = "/m/v3.gguf"
SERVER = "/opt/llama/llama-server"
RECIPE: dict[str, Any] = {
    "name": "llm",
    "kind": "llamacpp",
    "host": "127.0.0.1",
    "port": 8080,
    "supervisor": {
        "kind": "process",
        "argv": [SERVER, "-m", MODEL],
        "cwd": "/srv",
        "env": {"PATH": "/usr/bin"},
        "log": "/var/log/llm/server.log",
        "pidfile": "/run/llm/pid",
    },
    "inputs": [
        {"path": MODEL, "size": 1 << 30, "inode": 7, "mtime_ns": 1_700_000_000_000_000_000},
        {"path": SERVER, "size": 1 << 30, "inode": 7, "mtime_ns": 1_700_000_000_000_000_000},
    ],
    "identity": {"pid": 100, "start": 1000, "uid": UID},
}
UNIT = {"kind": "systemd", "unit": "llama.service", "scope": "system"}


def a_box() -> FakeBox:
    """A box on which production could come back."""
    return FakeBox().has(
        a_file(MODEL),
        a_program(SERVER),
        a_directory("/srv"),
        missing("/var/log/llm/server.log", nearest_writable=True),
        a_file("/run/llm/pid"),
    )


def recipe(**changes: Any) -> dict[str, Any]:
    """The recipe with changes on top; those of the supervisor are merged."""
    made = copy.deepcopy(RECIPE)
    made["supervisor"] |= changes.pop("supervisor", {})
    return made | changes


def ask(box: FakeBox | LinuxBox, **changes: Any) -> Verdict:
    """The answer about one recipe."""
    return look([WayBack(recipe=recipe(**changes))], box).verdicts[0]


def test_a_production_that_could_come_back_passes() -> None:
    """Program, directory, log, pidfile and every input."""
    verdict = ask(a_box())
    assert verdict.state is State.PASS, verdict.message()
    assert f"input: {MODEL}" in verdict.evidence


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"size": 5}, "size was 1073741824, is 5"),
        ({"inode": 8}, "inode was 7, is 8"),
        ({"fault": "ENOENT", "said": "gone", "nearest": "/m"}, "does not exist"),
        ({"size": 0}, "is empty"),
        ({"kind": "directory"}, "is a directory"),
    ],
)
def test_an_input_that_is_another_one_now_is_a_fail(change: dict[str, Any], said: str) -> None:
    """A restart would load something else, or nothing."""
    verdict = ask(a_box().has(a_file(MODEL, **change)))
    assert verdict.state is State.FAIL
    assert MODEL in verdict.found
    assert said in verdict.found


def test_an_input_that_was_only_touched_is_a_warning() -> None:
    """Same file, same size, later time: somebody should look, nobody has to wake up."""
    assert ask(a_box().has(a_file(MODEL, mtime_ns=5))).state is State.WARN


def test_an_input_on_a_dead_mount_is_unknown() -> None:
    """P8: no answer is not a missing file, and not a good one."""
    hung = missing(MODEL, fault=TIMEOUT, said="no answer within 10 s")
    assert ask(a_box().has(hung)).state is State.UNKNOWN


def test_an_input_that_only_production_may_read_is_fine() -> None:
    """Whom it runs as can read it: it does so now."""
    assert ask(a_box().has(a_file(MODEL, read_fault="EACCES"))).state is State.PASS


def test_weights_deleted_while_it_runs_are_a_fail() -> None:
    """It answers happily, and can never be started again."""
    box = a_box()
    box.deleted[100] = ((MODEL, 1), ("/usr/lib/libold.so", 2))
    verdict = ask(box)
    assert verdict.state is State.FAIL
    assert f"gone from disk ({MODEL}, deleted or replaced" in verdict.found
    assert "libold" not in verdict.found


def test_weights_of_a_child_of_production_count() -> None:
    """The engine maps them, the server that the pidfile names does not."""
    box = a_box()
    box.families[100] = {101}
    box.deleted[101] = (("/m/other-weights.safetensors", 3),)
    assert ask(box).state is State.FAIL


def test_a_process_that_may_not_be_looked_into_is_judged_by_its_paths() -> None:
    """Known inputs are enough; with none known either, nothing is known."""
    box = a_box()
    box.deleted[100] = None
    assert ask(box).state is State.PASS
    verdict = ask(box, inputs=[])
    assert verdict.state is State.UNKNOWN
    assert "what it runs from cannot be seen" in verdict.found


def test_production_of_another_user_is_refused_for_the_process_supervisor() -> None:
    """It would come back as somebody else."""
    verdict = ask(a_box(), identity={"pid": 100, "start": 1000, "uid": 1002})
    assert verdict.state is State.FAIL
    assert "runs as uid 1002; started by runner it would run as 1000" in verdict.found


@pytest.mark.parametrize(
    ("box", "said"),
    [
        (a_box().has(missing(SERVER)), "llama-server"),
        (a_box().has(a_file(SERVER)), "is not executable"),
        (a_box().has(missing("/srv")), "working directory /srv is not there"),
        (
            a_box().has(missing("/var/log/llm/server.log")),
            "/var/log/llm/server.log cannot be written by runner",
        ),
        (a_box().has(a_file("/run/llm/pid", writable=False)), "/run/llm/pid cannot be written"),
    ],
)
def test_each_thing_that_a_start_needs_is_named(box: FakeBox, said: str) -> None:
    """Program, directory, log and pidfile."""
    verdict = ask(box, inputs=[])
    assert verdict.state is State.FAIL
    assert said in verdict.found


@pytest.mark.parametrize(
    ("word", "found"),
    [("llama-server", State.PASS), ("./llama-server", State.FAIL), ("other", State.FAIL)],
)
def test_a_program_is_found_as_exec_would_find_it(word: str, found: State) -> None:
    """In the recipe's own PATH, or relative to its own directory."""
    env = {"PATH": "/usr/bin:/opt/llama"}
    assert ask(a_box(), supervisor={"argv": [word], "env": env}).state is found
    box = a_box().has(a_program("/srv/llama-server"))
    if word.startswith("./"):
        box.has(a_program("/srv/./llama-server"))
        assert ask(box, supervisor={"argv": [word]}).state is State.PASS


def test_several_troubles_are_all_in_the_evidence() -> None:
    """The worst is the headline, and none is lost."""
    verdict = ask(a_box().has(missing("/srv"), a_file(MODEL, mtime_ns=5)))
    assert verdict.state is State.FAIL
    assert any("was written to or touched" in said for said in verdict.evidence)


@pytest.mark.parametrize(
    ("mode", "state"),
    [
        ("control-group", State.FAIL),
        ("mixed", State.FAIL),
        ("process", State.PASS),
        ("", State.UNKNOWN),
    ],
)
def test_inside_a_service_a_started_production_would_die_with_it(mode: str, state: State) -> None:
    """Unless that service leaves its children alone, as cron's does."""
    box = a_box()
    box.who = Me(UID, "runner", "/system.slice/runner.service", "runner.service")
    box.has_units(a_unit("runner.service", KillMode=mode))
    verdict = ask(box)
    assert verdict.state is state
    assert ("would die with it" in verdict.found) is (state is not State.PASS)


def test_a_session_is_no_service() -> None:
    """Started from a terminal, production outlives us."""
    box = a_box()
    box.who = Me(UID, "runner", "/user.slice/user-1000.slice/session-3.scope", None)
    assert ask(box).state is State.PASS


# systemd and commands


@pytest.mark.parametrize(
    ("values", "state", "said"),
    [
        ({}, State.PASS, ""),
        ({"LoadState": "not-found"}, State.FAIL, "is not-found, not loaded"),
        ({"UnitFileState": "masked"}, State.FAIL, "masked"),
        ({"UnitFileState": "transient"}, State.FAIL, "once stopped it is gone for good"),
        ({"UnitFileState": "disabled"}, State.WARN, "is not enabled"),
        ({"UnitFileState": "static"}, State.PASS, ""),
        ({"CanStart": "no"}, State.FAIL, "cannot be started"),
        ({"CanStop": "no"}, State.FAIL, "cannot be stopped"),
        ({"NeedDaemonReload": "yes"}, State.FAIL, "would start something else"),
        ({"CanStart": ""}, State.FAIL, "cannot be started"),
        ({"EnvironmentFiles": "/etc/gone (ignore_errors=no)"}, State.FAIL, "environment file /etc/gone is gone"),
        ({"EnvironmentFiles": "/etc/gone (ignore_errors=yes)"}, State.PASS, ""),
        ({"WorkingDirectory": "/gone"}, State.FAIL, "working directory /gone is gone"),
        ({"WorkingDirectory": "!/srv"}, State.PASS, ""),
    ],
)  # fmt: skip
def test_a_unit_has_to_be_startable(values: dict[str, str], state: State, said: str) -> None:
    """What systemd says about it, property by property, and what it opens at a start."""
    box = a_box().has_units(a_unit(**values))
    verdict = ask(box, supervisor=UNIT)
    assert verdict.state is state, verdict.message()
    assert said in verdict.found


def test_a_directory_of_its_unit_on_a_dead_mount_is_unknown() -> None:
    """Systemd would hang there too, or find it again."""
    box = a_box().has_units(a_unit(WorkingDirectory="/srv/llm"))
    box.has(missing("/srv/llm", fault=TIMEOUT, said="no answer within 5 s"))
    verdict = ask(box, supervisor=UNIT)
    assert verdict.state is State.UNKNOWN
    assert "working directory /srv/llm: no answer within 5 s" in verdict.found


def test_a_systemd_that_does_not_answer_is_unknown() -> None:
    """P8: and it says what systemctl said."""
    box = a_box().has_units(Unit("llama.service", fault="EIO", said="Failed to connect to bus"))
    verdict = ask(box, supervisor=UNIT)
    assert verdict.state is State.UNKNOWN
    assert "Failed to connect to bus" in verdict.found


@pytest.mark.parametrize(
    ("changed", "values", "said"),
    [
        ("/etc/systemd/system/llama.service", {}, "was changed at"),
        ("/etc/systemd/system/llama.service.d/x.conf", {}, "was changed at"),
        ("", {"ExecStart": "{ path=/opt/s ; argv[]=/opt/s -c 9 ; ignore_errors=no ; }"}, "another command"),
        ("", {"ExecStart": "{ path=/opt/s ; argv[]=/opt/s ; ignore_errors=no ; }"}, ""),
        ("", {"ExecStart": "{ path=/opt/s ; argv[]=/opt/s $ARGS ; ignore_errors=no ; }"}, ""),
    ],
)  # fmt: skip
def test_a_unit_that_was_edited_since_its_start_is_a_warning(
    changed: str, values: dict[str, str], said: str
) -> None:
    """systemd has read it again, so a restart brings up something else than what runs."""
    started = 1_700_000_000.0
    box = a_box().has_units(
        a_unit(
            MainPID="100",
            FragmentPath="/etc/systemd/system/llama.service",
            DropInPaths="/etc/systemd/system/llama.service.d/x.conf",
            **values,
        )
    )
    box.processes[100] = a_process(100, "/opt/s", since=started)
    for path in ("/etc/systemd/system/llama.service", "/etc/systemd/system/llama.service.d/x.conf"):
        box.has(a_file(path, mtime_ns=int((started + (60 if path == changed else -60)) * 1e9)))
    verdict = ask(box, supervisor=UNIT, inputs=[])
    assert verdict.state is (State.WARN if said else State.PASS), verdict.message()
    assert said in verdict.found


def test_a_program_that_was_replaced_under_production_is_a_warning() -> None:
    """An upgrade at six in the evening: what comes back at night is another build."""
    box = a_box()
    box.processes[100] = a_process(100, SERVER, exe=f"{SERVER} (deleted)", since=1.8e9)
    verdict = ask(box)
    assert verdict.state is State.WARN
    assert f"its program {SERVER} was replaced since it started" in verdict.found


def test_a_file_that_was_written_after_the_start_is_a_warning() -> None:
    """Production has read it as it was; a restart reads what is there now."""
    box = a_box()
    box.processes[100] = a_process(100, SERVER, since=1_699_000_000.0)
    assert "was written after production started" in ask(box).found
    box.processes[100] = a_process(100, SERVER, since=1_700_000_001.0)
    assert ask(box).state is State.PASS


@pytest.mark.parametrize(
    ("key", "state", "said"),
    [
        ({"file": "/etc/llm/key"}, State.PASS, ""),
        ({"file": "/etc/llm/gone"}, State.FAIL, "its API key file /etc/llm/gone does not exist"),
        ({"file": "/etc/llm/shut"}, State.FAIL, "this user may not read it"),
        ({"env": "LLM_KEY"}, State.WARN, "in the environment of this process alone (LLM_KEY)"),
        (None, State.PASS, ""),
    ],
)
def test_the_api_key_has_to_be_readable_again(key: object, state: State, said: str) -> None:
    """Whoever restores production must be able to ask it whether it serves."""
    box = a_box().has(a_file("/etc/llm/key"), a_file("/etc/llm/shut", read_fault="EACCES"))
    verdict = ask(box, probe={"api_key": key})
    assert verdict.state is state, verdict.message()
    assert said in verdict.found


def test_commands_have_to_be_there() -> None:
    """start, stop and status: each one's program."""
    commands = {"kind": "command", "start": ["/opt/up"], "stop": ["/opt/down"], "status": ["true"]}
    box = a_box().has(a_program("/opt/up"), a_program("/opt/down"), a_program("/usr/bin/true"))
    assert ask(box, supervisor=commands).state is State.PASS
    assert ask(a_box(), supervisor=commands).state is State.FAIL
    assert ask(box, supervisor={**commands, "stop": []}).state is State.FAIL


def test_a_supervisor_that_nobody_knows_is_a_fail() -> None:
    """A recipe of a newer version, or of a typing error."""
    assert ask(a_box(), supervisor={"kind": "upstart"}).state is State.FAIL


def test_both_questions_come_from_one_recipe() -> None:
    """Permission and things."""
    assert [check.id for check in way_back(RECIPE)] == ["prod.permission", "prod.restore"]
    assert not any(check.acceptable for check in way_back(RECIPE))


# the same with a real process


@pytest.fixture
def box() -> Iterator[LinuxBox]:
    """This machine."""
    with LinuxBox() as here:
        yield here


@pytest.fixture
def mapping(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A real process that maps its weights, and its recipe."""
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF" + bytes(65536))
    code = "import mmap, sys; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); f.close(); m[0]; print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        server.stdout.readline()
        found = model.stat()
        ident = proc.ident(server.pid)
        assert ident is not None
        try:
            yield {
                "name": "llm",
                "supervisor": {
                    "kind": "process",
                    "argv": [sys.executable],
                    "cwd": str(tmp_path),
                    "env": {},
                    "log": f"{tmp_path}/log",
                    "pidfile": f"{tmp_path}/pid",
                },
                "inputs": [
                    {
                        "path": str(model),
                        "size": found.st_size,
                        "inode": found.st_ino,
                        "mtime_ns": found.st_mtime_ns,
                    }
                ],
                "identity": {"pid": server.pid, "start": ident.start, "uid": os.geteuid()},
            }
        finally:
            server.communicate()


def test_a_real_production_could_come_back(box: LinuxBox, mapping: dict[str, Any]) -> None:
    """A live process, its mapped file on disk, its places writable."""
    verdict = look([WayBack(recipe=mapping)], box).verdicts[0]
    # this test may itself run inside a service, which is another matter
    assert verdict.state is State.PASS or "this runs inside" in verdict.found


def test_a_model_deleted_under_a_real_process_is_found(
    box: LinuxBox, mapping: dict[str, Any]
) -> None:
    """It still maps every byte, and could never be started again."""
    model = Path(mapping["inputs"][0]["path"])
    kept = model.read_bytes()
    model.unlink()
    verdict = look([WayBack(recipe=mapping)], box).verdicts[0]
    assert verdict.state is State.FAIL
    model.write_bytes(kept)
    replaced = look([WayBack(recipe={**mapping, "inputs": []})], box).verdicts[0]
    assert replaced.state is State.FAIL
    assert "deleted or replaced while it runs" in replaced.found


def test_a_deleted_model_whose_bytes_are_kept_can_come_back(
    box: LinuxBox, mapping: dict[str, Any]
) -> None:
    """A hard link to what the process maps, beside it or back at its path: the same file."""
    model = Path(mapping["inputs"][0]["path"])
    pin = model.with_name("pin")
    pin.hardlink_to(model)
    model.unlink()
    bare = {**mapping, "inputs": []}
    assert look([WayBack(recipe=bare)], box).verdicts[0].state is State.FAIL
    kept = look([WayBack(recipe={**bare, "kept": {str(model): str(pin)}})], box).verdicts[0]
    assert "gone from disk" not in kept.found
    model.hardlink_to(pin)
    back = look([WayBack(recipe=mapping)], box).verdicts[0]
    assert back.state is State.PASS or "this runs inside" in back.found


def test_a_model_that_goes_between_check_and_gate_closes_the_gate(
    box: LinuxBox, mapping: dict[str, Any]
) -> None:
    """The way back is looked at again right before the stop."""
    looked = look([WayBack(recipe=mapping)], box)
    if looked.passed is None:
        pytest.skip(f"the tests' own place stands in the way: {looked.verdicts[0].found}")
    assert isinstance(gate(looked.passed, box, lambda: 0.0), Gate)
    Path(mapping["inputs"][0]["path"]).unlink()
    assert isinstance(gate(looked.passed, box, lambda: 0.0), tuple)
