"""Files by explicit path: each way of not being there has words of its own."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.box import CRASH, TIMEOUT, FileFact, GgufFact, Neighbour
from preflight.files.exists import FileExists
from preflight.linux.box import LinuxBox
from preflight.models.roles import Roles
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import FakeBox, a_directory, a_file, missing
from tests.preflight.ggufs import gguf
from tests.preflight.unprivileged import look_as_nobody

PATH = "/m/model.gguf"


@pytest.fixture(scope="module")
def box() -> Iterator[LinuxBox]:
    """This machine."""
    with LinuxBox() as here:
        yield here


def ask(box: FakeBox | LinuxBox, path: str | Path, **more: object) -> Verdict:
    """The answer about one file."""
    check = FileExists.model_validate({"path": str(path), "role": "draft", **more})
    return look([check], box).verdicts[0]


# what a stat tells, and how it is said

FAULTS: list[tuple[FileFact, State, str]] = [
    (missing(PATH), State.FAIL, "does not exist"),
    (missing(PATH, nearest="/"), State.FAIL, "nor does its directory (the deepest that does is /)"),
    (
        missing(PATH, links=("../../blobs/9f3c",), target="/hf/blobs/9f3c"),
        State.FAIL,
        "is a symbolic link to ../../blobs/9f3c, which is gone",
    ),
    (missing(PATH, fault="EACCES"), State.UNKNOWN, "no permission below /m"),
    (missing(PATH, fault="ELOOP"), State.FAIL, "leads back to itself"),
    (missing(PATH, fault="ENOTDIR"), State.FAIL, "which is no directory"),
    (missing(PATH, fault="ENAMETOOLONG"), State.FAIL, "longer than any name"),
    (missing(PATH, fault="ESTALE", said="Stale file handle"), State.UNKNOWN, "Stale file handle"),
    (missing(PATH, fault="EIO", said="Input/output error"), State.UNKNOWN, "Input/output error"),
    (
        missing(PATH, fault=TIMEOUT, said="no answer within 5 s"),
        State.UNKNOWN,
        "within 5 s (timeout)",
    ),
    (missing(PATH, fault=CRASH, said="it died of SIGBUS"), State.UNKNOWN, "it died of SIGBUS"),
    (a_directory(PATH), State.FAIL, "is a directory"),
    (a_file(PATH, kind="other"), State.FAIL, "no regular file"),
    (a_file(PATH, size=0), State.FAIL, "is empty (0 bytes)"),
    (a_file(PATH, read_fault="EACCES"), State.FAIL, "exists, but this user may not read it"),
    (a_file(PATH, read_fault="ESTALE"), State.UNKNOWN, "cannot be read (ESTALE)"),
]


@pytest.mark.parametrize(("fact", "state", "said"), FAULTS, ids=lambda value: str(value)[:30])
def test_each_fault_is_said_in_its_own_words(fact: FileFact, state: State, said: str) -> None:
    """Missing, dangling, hidden, empty, unreadable and hung are six different nights."""
    verdict = ask(FakeBox().has(fact), PATH, gguf=True)
    assert verdict.state is state
    assert said in verdict.found
    assert verdict.remedy
    assert f"path: {PATH}" in verdict.evidence


def test_the_words_of_all_faults_differ() -> None:
    """No two of them read alike."""
    words = {ask(FakeBox().has(fact), PATH).found for fact, _, _ in FAULTS}
    assert len(words) == len(FAULTS)


def test_what_lies_beside_a_missing_file_is_a_hint_and_never_a_choice() -> None:
    """The incident: the shards were merged and the draft deleted, hours before midnight."""
    box = FakeBox()
    box.beside["/m"] = (
        Neighbour("Qwen3.gguf", 64 << 30, 1_700_000_000.0, "bob"),
        Neighbour("notes.txt", 12, 1_600_000_000.0, "bob"),
    )
    verdict = ask(box, "/m/mtp-draft.gguf")
    assert verdict.state is State.FAIL
    assert any("Qwen3.gguf, 64.0 GiB" in said and "by bob" in said for said in verdict.evidence)
    assert not any("notes.txt" in said for said in verdict.evidence)
    assert verdict.who.startswith("newest file there: Qwen3.gguf by bob")


def test_production_files_that_only_production_may_read_are_a_warning() -> None:
    """They are there, and the user that has to read them is another one."""
    verdict = ask(FakeBox().has(a_file(PATH, read_fault="EACCES")), PATH, owner="production")
    assert verdict.state is State.WARN


@pytest.mark.parametrize(
    ("role", "executable", "state"),
    [("binary", True, State.PASS), ("binary", False, State.FAIL), ("weights", True, State.FAIL)],
)
def test_a_program_may_be_run_without_being_read(role: str, executable: bool, state: State) -> None:
    """Mode 0711; a model has to be read."""
    box = FakeBox().has(a_file(PATH, read_fault="EACCES", executable=executable))
    assert ask(box, PATH, role=role).state is state


CLEANED = [
    "/tmp/model.gguf",  # noqa: S108 - a name, and no file of ours
    "/dev/shm/model.gguf",  # noqa: S108 - likewise, a name only
    "/home/a/.cache/huggingface/hub/x/model.gguf",
]


@pytest.mark.parametrize("path", CLEANED)
def test_a_file_that_others_clean_away_is_a_warning(path: str) -> None:
    """Somebody's clean-up can take it hours before the job fires."""
    verdict = ask(FakeBox().has(a_file(path)), path)
    assert verdict.state is State.WARN
    assert "clean" in verdict.found


ASTRAY = [
    (
        "/models/a.gguf",
        "/home/anna/a.gguf",
        "is a link into /home/, where somebody else may move it",
    ),
    ("/models/a.gguf", "/media/usb/a.gguf", "is a link into /media/"),
    ("/models/a.gguf", "/usr/share/ollama/.ollama/models/blobs/sha256-1", "another program cleans"),
    ("/models/a.gguf", "/var/tmp/a.gguf", "gets cleaned"),  # noqa: S108 - a name only
    ("/home/anna/a.gguf", "/home/anna/v2/a.gguf", ""),
    ("/models/a.gguf", "/mnt/disk/a.gguf", ""),
]


@pytest.mark.parametrize(("path", "target", "said"), ASTRAY)
def test_a_link_that_leads_to_where_others_tidy_up_is_a_warning(
    path: str, target: str, said: str
) -> None:
    """The path looks safe; where its bytes are counts."""
    verdict = ask(FakeBox().has(a_file(path, links=(target,), target=target)), path)
    assert verdict.state is (State.WARN if said else State.PASS)
    assert said in verdict.found


# the same on a real file system


def test_real_faults_are_found(box: LinuxBox, tmp_path: Path) -> None:
    """Every fault that can be made without a broken disk."""
    whole = tmp_path / "model.gguf"
    whole.write_bytes(gguf())
    (tmp_path / "dangling").symlink_to("../blobs/gone")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(whole)
    expected = {
        "gone": "does not exist (its directory last changed",
        "dangling": "is a symbolic link to ../blobs/gone, which is gone",
        "loop": "leads back to itself",
        "empty": "is empty",
        "pipe": "no regular file",
        "model.gguf/below": "which is no directory",
        "no/such/place": f"the deepest that does is {tmp_path}",
        "x" * 300: "longer than any name",
        ".": "is a directory",
        "link": "",
    }
    for name, said in expected.items():
        verdict = ask(box, f"{tmp_path}/{name}", gguf=True)
        assert said in verdict.found, name
        assert verdict.refuses is bool(said), verdict.message()


@pytest.mark.parametrize("path", ["model.gguf", "", "/m/\0.gguf"])
def test_what_is_no_absolute_path_is_refused(box: LinuxBox, path: str) -> None:
    """Relative to what would depend on who asks."""
    assert ask(box, path).state is State.FAIL


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"<!DOCTYPE html><html>", "is a web page"),
        (b"\n<html lang=en>", "is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
        (b"PK\x03\x04rest", "is a zip archive"),
        (b"\x1b[2Jx", "begins with '\\x1b[2Jx'"),
        (b"G", "begins with 'G'"),
    ],
)
def test_what_is_stored_under_a_model_name_is_recognised(
    box: LinuxBox, tmp_path: Path, head: bytes, said: str
) -> None:
    """A download can store anything under the right name (case: not a GGUF)."""
    path = tmp_path / "model.gguf"
    path.write_bytes(head)
    verdict = ask(box, path, gguf=True)
    assert (verdict.id, verdict.state) == ("file.gguf", State.FAIL)
    assert said in verdict.found


def test_a_model_that_is_short_is_told_by_how_much(box: LinuxBox, tmp_path: Path) -> None:
    """A download that stopped one byte early is found from the header alone."""
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf()[:-1])
    verdict = ask(box, path, gguf=True)
    assert (verdict.id, verdict.state) == ("file.gguf", State.FAIL)
    assert "is short by 1 bytes" in verdict.found


def test_a_broken_header_is_told_with_its_place(box: LinuxBox, tmp_path: Path) -> None:
    """The sentence of the reader is passed on."""
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf()[:30])
    verdict = ask(box, path, gguf=True)
    assert (verdict.id, verdict.state) == ("file.gguf", State.FAIL)
    assert "the header is cut off (at byte 30)" in verdict.found


def test_a_file_of_another_kind_is_not_asked_for_magic(box: LinuxBox, tmp_path: Path) -> None:
    """A prompt is text."""
    path = tmp_path / "long.txt"
    path.write_text("once upon a time")
    assert not ask(box, path).refuses


def test_a_path_with_escape_codes_is_shown_escaped(box: LinuxBox, tmp_path: Path) -> None:
    """Names are hostile: what is printed never moves a cursor."""
    verdict = ask(box, f"{tmp_path}/a\x1b[2Jb\nc")
    assert "\x1b" not in verdict.message()
    assert "a\\x1b[2Jb\\nc" in verdict.message()


# shards


def test_a_hole_where_a_tensor_should_be_fails(box: LinuxBox, tmp_path: Path) -> None:
    """A real server loaded such a file without a word, and answered the test prompt alike."""
    path = tmp_path / "model.gguf"
    whole = gguf(tensors={"token_embd.weight": 1_000_000})
    path.write_bytes(whole[: 1 << 20])
    with path.open("r+b") as file:
        file.seek(2 << 20)
        file.write(whole[2 << 20 :])
    verdict = ask(box, path, gguf=True)
    assert (verdict.id, verdict.state) == ("file.gguf", State.FAIL)
    assert f"has a hole of 1.0 MiB at byte {1 << 20} of {len(whole)}" in verdict.found
    assert "--sparse=never" in verdict.remedy


def test_space_that_was_only_reserved_fails(box: LinuxBox, tmp_path: Path) -> None:
    """A downloader's preallocated file has its full length, and all of its blocks."""
    path = tmp_path / "model.gguf"
    whole = gguf(tensors={"token_embd.weight": 1_000_000})
    path.write_bytes(whole[: 1 << 16])
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, len(whole))
        os.fsync(file.fileno())
        if os.lseek(file.fileno(), 0, os.SEEK_HOLE) == len(whole):
            pytest.skip("this file system does not tell reserved space from data")
    assert "has a hole" in ask(box, path, gguf=True).found


def test_zeros_on_zfs_are_no_proof_of_a_hole() -> None:
    """It keeps blocks of zeros as holes: unknown, which a person may accept."""
    box = FakeBox().has(a_file(PATH))
    box.headers[PATH] = GgufFact(
        PATH, size=1 << 30, needed=1 << 30, version=3, hole=4096, hollow=128, zeros_are_holes=True
    )
    verdict = ask(box, PATH, gguf=True)
    assert (verdict.id, verdict.state) == ("file.gguf", State.UNKNOWN)
    assert "zfs" in verdict.found


@pytest.mark.parametrize("ending", [".aria2", ".part", ".incomplete", ".downloadInProgress"])
def test_a_download_that_goes_on_fails(box: LinuxBox, tmp_path: Path, ending: str) -> None:
    """By the file that the downloader keeps beside it, also where a link leads to it."""
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf())
    link = tmp_path / "elsewhere" / "link.gguf"
    link.parent.mkdir()
    link.symlink_to(path)
    assert ask(box, path, gguf=True).id == "file.exists"
    marker = path.with_name(path.name + ending)
    marker.touch()
    for name in (path, link):
        verdict = ask(box, name, gguf=True)
        assert verdict.state is State.FAIL
        assert f"is being downloaded: {marker} is there" in verdict.found
    assert ask(box, marker.rename(tmp_path / f"x{ending}"), gguf=True).state is State.FAIL


def test_a_tensor_that_lies_elsewhere_fails(box: LinuxBox, tmp_path: Path) -> None:
    """Reserved too small, it would be read into the next one."""
    raw = bytearray(gguf(tensors={"a": 64, "b": 64}))
    at = raw.index(b"b", raw.index(b"a\x01\0\0\0")) + 1 + 4 + 8 + 4
    raw[at : at + 8] = (128).to_bytes(8, "little")
    (tmp_path / "model.gguf").write_bytes(bytes(raw))
    verdict = ask(box, tmp_path / "model.gguf", gguf=True)
    assert verdict.state is State.FAIL
    assert "tensor b does not lie where it should" in verdict.found


ODD = [
    (gguf() + bytes(4096), "has 4096 bytes behind its last tensor"),
    (gguf(version=2), "is of GGUF version 2"),
]


@pytest.mark.parametrize(("raw", "said"), ODD, ids=[said for _, said in ODD])
def test_what_a_server_may_load_all_the_same_is_a_warning(
    box: LinuxBox, tmp_path: Path, raw: bytes, said: str
) -> None:
    """Odd, and no reason to refuse by itself."""
    path = tmp_path / "model.gguf"
    path.write_bytes(raw)
    verdict = ask(box, path, gguf=True)
    assert (verdict.id, verdict.state) == ("file.gguf", State.WARN)
    assert said in verdict.found


def test_a_tensor_type_that_is_not_known_is_a_warning() -> None:
    """New ones come with every few releases; the length cannot be checked then."""
    box = FakeBox().has(a_file(PATH))
    box.headers[PATH] = GgufFact(PATH, size=1 << 30, needed=1, version=3, tensors=9, untold=2)
    verdict = ask(box, PATH, gguf=True)
    assert verdict.state is State.WARN
    assert "2 tensors of a type that is not known here" in verdict.found


def test_names_with_newlines_and_escape_codes_are_shown_escaped(
    box: LinuxBox, tmp_path: Path
) -> None:
    """Of the file itself, of what lies beside it, and of what its header claims."""
    evil = "a\nFAIL all is well\x1b[31m"
    (tmp_path / f"{evil}.gguf").write_bytes(gguf())
    beside = ask(box, tmp_path / "a.gguf", gguf=True)
    (tmp_path / "m.gguf").write_bytes(gguf({"general.architecture": evil, "general.name": evil}))
    role = look([Roles(model=str(tmp_path / "m.gguf"))], box).verdicts[0]
    own = ask(box, tmp_path / f"{evil}.gguf.part", gguf=True)
    for verdict in (beside, role, own):
        for text in (verdict.message(), *verdict.to_json()["evidence"]):  # type: ignore[misc]  # a list of texts
            assert str(text).isprintable()
    assert any("\\n" in said for said in role.to_json()["evidence"] + [role.message()])  # type: ignore[operator]  # a list of texts


def test_the_real_box_reads_a_program_it_may_only_run(box: LinuxBox, tmp_path: Path) -> None:
    """The facts of a file with modes: executable, size, owner."""
    path = tmp_path / "tool"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    (fact,) = box.files([str(path)], within=5)
    assert fact.executable
    assert fact.mode == stat.S_IMODE(path.stat().st_mode)
    assert fact.uid == os.getuid()
    assert fact.fingerprint == f"{path.stat().st_ino}:10:{path.stat().st_mtime_ns}"


def test_what_a_real_user_may_not_see_is_told_apart(open_room: Path) -> None:
    """As the user nobody: a hidden directory is unknown, a locked file is a fail."""
    code = """
import json, sys
from preflight.linux.box import LinuxBox
from preflight.files.exists import FileExists
from preflight.rings import look
from preflight.models.roles import Roles
with LinuxBox() as box:
    checks = [FileExists(path=path, owner=owner) for path in sys.argv[1:] for owner in ("job", "production")]
    print(json.dumps([verdict.to_json() for verdict in look(checks, box).verdicts]))
"""
    hidden = open_room / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "model.gguf").write_bytes(gguf())
    locked = open_room / "locked.gguf"
    locked.write_bytes(gguf())
    locked.chmod(0o600)
    said = look_as_nobody(code, str(hidden / "model.gguf"), str(locked))
    assert [verdict["state"] for verdict in said] == ["unknown", "unknown", "fail", "warn"]
    assert f"no permission below {hidden}" in said[0]["found"]
    assert "exists, but this user may not read it" in said[2]["found"]
