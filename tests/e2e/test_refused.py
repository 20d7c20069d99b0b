"""Preflight says no: nothing is touched, production's process stays, and everything is named."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.linux import proc
from runner.demo import models
from tests.e2e.night import Night, Ran, get
from tests.servers import STANDIN, Child, soon


def refused(night: Night, before: int, ran: Ran) -> None:
    """Exit 3, the same process in production, and an alert that says so."""
    assert ran.code == 3, str(ran)
    assert ran.json["outcome"] == "refused"
    assert night.serving() == before
    assert ran.json["production"]["stopped_at"] is None
    assert night.candidates() == []
    assert night.told().startswith(ran.json["headline"].split(" · ")[0])
    assert "REFUSED" in night.told()


def test_missing_draft_is_named(serving: Night, tmp_path: Path) -> None:
    """The incident: the draft model was deleted hours before midnight."""
    draft = tmp_path / "draft.gguf"
    serving.job(candidate={"draft": str(draft)})
    before = serving.serving()
    ran = serving.run()
    refused(serving, before, ran)
    (verdict,) = ran.check("file.exists", "fail")
    assert str(draft) in verdict["subject"]
    assert draft.name in serving.told()


def test_missing_shard_is_named(serving: Night, tmp_path: Path) -> None:
    """The incident: shards were merged into one file, and are no more."""
    first, _, third, _ = models.write("mtp", tmp_path / "model.gguf", shards=4)
    third.unlink()
    serving.job(candidate={"model": str(first)})
    before = serving.serving()
    ran = serving.run()
    refused(serving, before, ran)
    assert third.name in str(ran.json["checks"])


def test_stranger_on_the_port_is_named(serving: Night, tmp_path: Path) -> None:
    """The incident: somebody's proxy has the port, and it is not ended for us."""
    argv = (*STANDIN, "-m", str(serving.model))
    before = serving.serving()
    with Child(argv, tmp_path / "stranger.log", port=serving.candidate_port) as stranger:
        stranger.ready()
        ran = serving.run()
        refused_checks = ran.check("port.owner", "fail")
        assert ran.code == 3, str(ran)
        assert str(stranger.pid) in str(refused_checks)
        assert stranger.status("/health") == 200
    assert serving.serving() == before


def test_everything_that_is_wrong_with_files_is_named_at_once(
    serving: Night, tmp_path: Path
) -> None:
    """One alert tells all of it: the ring that refuses is finished."""
    gone = [str(tmp_path / name) for name in ("a.gguf", "b.txt", "c.txt")]
    serving.job(candidate={"draft": gone[0]}, needs={"files": gone[1:]})
    ran = serving.run()
    assert ran.code == 3
    assert all(path in str(ran.check("file.exists", "fail")) for path in gone)


def test_deleted_weights_of_production_are_never_let_go(serving: Night) -> None:
    """The running server hides that its file is gone; stopping it would be for ever."""
    before = serving.serving()
    Path(serving.settings["production"][0]["model"]).unlink()
    ran = serving.run()
    assert ran.code == 3, str(ran)
    assert serving.serving() == before


def test_production_that_was_down_is_not_started(night: Night) -> None:
    """Down before us, perhaps on purpose: refused, and nothing is started."""
    night.service()
    night.job()
    ran = night.run()
    assert ran.code == 3, str(ran)
    assert ran.json["production"]["state"] == "down-before"
    assert night.pid() is None
    assert "down before us" in night.told().lower()


def test_stranger_in_productions_place_is_not_stopped(night: Night, tmp_path: Path) -> None:
    """What answers on production's port is another program: it stays, whoever started it."""
    service = night.service()
    night.job()
    argv = (*STANDIN, "-m", str(night.model))
    with Child(argv, tmp_path / "stranger.log", port=service["port"]) as stranger:
        stranger.ready()
        ran = night.run()
        assert ran.code == 3, str(ran)
        assert stranger.status("/health") == 200


def test_gpu_that_is_not_there_is_not_assumed(serving: Night) -> None:
    """A job that asks for GPU memory on a box without a GPU is refused, not waved through."""
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has a GPU")
    serving.job(needs={"gpu": [{"free_mib": 1000}]})
    before = serving.serving()
    ran = serving.run()
    refused(serving, before, ran)
    assert ran.check("gpu.budget")


def test_missing_llama_server_is_named(serving: Night, tmp_path: Path) -> None:
    """The program of the candidate is a file like the others."""
    program = str(tmp_path / "bin" / "llama-server")
    serving.job(candidate={"command": [program]})
    before = serving.serving()
    ran = serving.run()
    refused(serving, before, ran)
    assert program in str([check for check in ran.json["checks"] if check["state"] == "fail"])


def test_missing_model_is_named(serving: Night) -> None:
    """The weights of the candidate are gone."""
    serving.model.unlink()
    before = serving.serving()
    ran = serving.run()
    refused(serving, before, ran)
    assert str(serving.model) in str(ran.check("file.exists", "fail"))


@contextlib.contextmanager
def asked(port: int, room: Path) -> Iterator[None]:
    """Somebody waits for an answer that is held back."""
    ask = f"""
import httpx
httpx.post("http://127.0.0.1:{port}/completion", json={{"prompt": "please wait"}})
"""
    with subprocess.Popen([sys.executable, "-I", "-c", ask], cwd=room) as client:
        try:
            soon(lambda: get(port, "/slots?fail_on_no_slot=1") == 503 or None)
            yield
        finally:
            client.kill()


def test_busy_production_is_waited_for_and_then_left_alone(night: Night, tmp_path: Path) -> None:
    """Somebody's long answer is not cut: past idle_within the run is refused."""
    service = night.service("llm", "--hold-request", "please wait", idle_within="500ms")
    night.job()
    night.start()
    before = night.serving()
    with asked(service["port"], tmp_path):
        ran = night.run()
    assert ran.code == 3, str(ran)
    assert night.serving() == before


def test_what_goes_between_preflight_and_the_stop_is_seen_by_the_gate(
    night: Night, tmp_path: Path
) -> None:
    """A model that is deleted while the run waits for an idle production: production stays up."""
    service = night.service("llm", "--hold-request", "please wait", idle_within="60s")
    night.job()
    night.start()
    before = night.serving()
    with asked(service["port"], tmp_path):
        run = night.begin("run", "night", "--json")
        soon(lambda: True if _looked(night) else None, within=20)
        night.model.unlink()
    ran = run.end()
    refused(night, before, ran)
    assert ran.check("file.exists", "fail")
    assert ran.json["why"] == "something changed since it was checked"


def _looked(night: Night) -> bool:
    """Whether preflight has answered."""
    with contextlib.suppress(sqlite3.Error), sqlite3.connect(night.state / "journal.db") as db:
        return bool(db.execute("SELECT count(*) FROM verdicts").fetchone()[0])
    return False


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four MiB; needs root."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    room = tmp_path / "small"
    room.mkdir()
    mounted = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=4m", "small", str(room)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("this machine does not let us mount")
    try:
        yield room
    finally:
        subprocess.run(["/bin/umount", "-l", str(room)], check=True)


def test_full_disk_stops_nothing(serving: Night, small_disk: Path) -> None:
    """Without room for the way back nothing is stopped, and the answer says where it is full."""
    state = small_disk / "state"
    serving.settings["state_dir"] = str(state)
    serving.write()
    before = serving.serving()
    with (small_disk / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass
    ran = serving.run()
    assert ran.code in (2, 3), str(ran)
    assert "small" in ran.out
    assert serving.serving() == before


def test_unwritable_state_directory_stops_nothing(serving: Night) -> None:
    """The state directory cannot be made: a sentence with the path, exit 2, nothing touched."""
    blocker = serving.room / "file"
    blocker.write_text("not a directory")
    serving.settings["state_dir"] = str(blocker / "state")
    serving.write()
    before = serving.serving()
    ran = serving.run()
    assert ran.code == 2, str(ran)
    assert str(blocker) in ran.json["error"]["where"] + ran.json["error"]["message"]
    assert ran.json["error"]["remedy"]
    assert serving.serving() == before


def test_production_is_the_same_process_throughout(serving: Night) -> None:
    """A refused run does not even signal: the process has the same start time."""
    before = proc.ident(serving.serving())
    serving.model.unlink()
    serving.run()
    assert proc.ident(serving.serving()) == before


def test_a_context_that_will_not_be_filled_costs_no_downtime(serving: Night) -> None:
    """Allocated is not used: what could only stay unproven is not begun."""
    serving.job(claim=[{"kind": "context", "tokens": 4096, "filled_at_least": 0.9}])
    before = proc.ident(serving.serving())
    ran = serving.run()
    assert ran.code == 2, str(ran)
    assert "the workload fills 0.5 of 4,096" in ran.json["error"]["message"]
    assert proc.ident(serving.serving()) == before


def test_prompts_that_are_no_text_cost_no_downtime(serving: Night, tmp_path: Path) -> None:
    """A file that is there and cannot be used was once found out with production down."""
    prompts = tmp_path / "prompts.txt"
    prompts.write_bytes(b"ol\xe9")
    serving.job(workload={"prompts": str(prompts)})
    before = serving.serving()
    ran = serving.run()
    refused(serving, before, ran)
    for said in (ran, serving.call("check", "night", "--json")):
        assert said.code == 3, str(said)
        (verdict,) = said.check("self.config", "fail")
        assert verdict["found"] == f"{prompts} is not UTF-8 text"


def test_a_key_that_is_not_set_costs_no_downtime(serving: Night) -> None:
    """The candidate's key lies in a variable that cron does not know."""
    serving.job(candidate={"api_key": {"env": "LLAMA_API_KEY"}})
    before = serving.serving()
    ran = serving.run()
    refused(serving, before, ran)
    (verdict,) = ran.check("self.config", "fail")
    assert verdict["found"] == "the environment variable LLAMA_API_KEY holds no secret"
