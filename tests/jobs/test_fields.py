"""The small types: each refuses what would mean something else at midnight."""

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from jobs.fields import (
    Duration,
    ExplicitPath,
    Host,
    Port,
    PortOrFree,
    Seconds,
    SecretRef,
    base_url,
    duration,
    in_words,
)
from jobs.names import bad_name

PATH = TypeAdapter(ExplicitPath)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/models/*.gguf", "glob"),
        ("/models/model-?.gguf", "glob"),
        ("/models/model-[12].gguf", "glob"),
        ("/models/{a,b}.gguf", "glob"),
        ("~/model.gguf", "`~`"),
        ("/home/$USER/model.gguf", "variables"),
        ("/home/${USER}/model.gguf", "variables"),
        ("/home/$(whoami)/model.gguf", "variables"),
        ("model.gguf", "relative"),
        ("./model.gguf", "relative"),
        ("/models/../model.gguf", r"`\.\.`"),
        ("/models/", "directory"),
        ("", "empty"),
        ("/models/a\nb", "line break"),
    ],
)
def test_a_path_that_is_not_explicit_is_refused(path: str, why: str) -> None:
    """The incident: a restore picked its model by a glob and found two."""
    with pytest.raises(ValidationError, match=why):
        PATH.validate_python(path)


@pytest.mark.parametrize("path", ["/m/model.gguf", "/m/a b (1).gguf", "/m/ünï.gguf", "/m/a$1"])
def test_an_explicit_path_is_taken_as_it_is(path: str) -> None:
    """Also with blanks, accents and a lone dollar sign."""
    assert PATH.validate_python(path) == path


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("2h", 7200), ("1h30m", 5400), ("250ms", 0.25), ("1d", 86400)],
)
def test_durations_are_read_with_their_unit(text: str, seconds: float) -> None:
    """The common spellings, also two of them in a row."""
    assert duration(text) == seconds
    assert isinstance(duration(text), float)


@pytest.mark.parametrize("text", [90, 1.5, True, "90", "soon", "", "5 minutes", "-5m", "m"])
def test_a_duration_without_a_unit_is_refused(text: object) -> None:
    """Ninety what?"""
    with pytest.raises(ValueError, match="duration"):
        duration(text)


def test_a_duration_is_written_as_it_is_read() -> None:
    """So that a plan and a schema show what a person would write."""
    assert [in_words(value) for value in (90, 900, 5400, 0.25)] == [
        "1m30s",
        "15m",
        "1h30m",
        "250ms",
    ]
    assert TypeAdapter(Duration).dump_json(Seconds(900)) == b'"15m"'
    assert TypeAdapter(Duration).validate_python(Seconds(5)) == 5


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "localhost.localdomain"])
def test_localhost_is_refused(host: str) -> None:
    """It is two addresses."""
    with pytest.raises(ValidationError, match=r"127\.0\.0\.1 or ::1"):
        TypeAdapter(Host).validate_python(host)


def test_a_host_is_an_address() -> None:
    """A name would have to be looked up at midnight."""
    assert TypeAdapter(Host).validate_python("::1") == "::1"
    with pytest.raises(ValidationError, match="no IP address"):
        TypeAdapter(Host).validate_python("gpubox")


def test_a_wildcard_is_asked_on_loopback() -> None:
    """A server on 0.0.0.0 is probed at 127.0.0.1."""
    everywhere = "0.0.0.0"  # noqa: S104 - nothing is bound
    assert base_url(everywhere, 80) == "http://127.0.0.1:80"
    assert base_url("::", 80) == "http://[::1]:80"


@pytest.mark.parametrize("port", [0, 65536, "8080", True, 80.0])
def test_a_port_is_a_number_in_its_range(port: object) -> None:
    """Also not as text, and `free` only where it may be."""
    with pytest.raises(ValidationError):
        TypeAdapter(Port).validate_python(port)
    with pytest.raises(ValidationError, match="is a port"):
        TypeAdapter(PortOrFree).validate_python(port)
    assert TypeAdapter(PortOrFree).validate_python("free") == "free"


@pytest.mark.parametrize(
    ("name", "why"),
    [("a/b", "a slash"), ("a.toml", "a dot"), ("a b", "a space"), ("", "empty"), ("ä", "letters")],
)
def test_a_name_says_what_is_wrong_with_it(name: str, why: str) -> None:
    """A job name with a slash gets a sentence of its own."""
    assert why in (bad_name(name) or "")
    assert bad_name("200k-mtp_2") is None


def test_a_secret_is_read_from_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file, a variable, a credential; comments and blanks of a file are no secret."""
    file = tmp_path / "key"
    file.write_text("# the key\n\n  sk-1\n")
    monkeypatch.setenv("KEY", "sk-2")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert SecretRef(file=str(file)).read() == "sk-1"
    assert SecretRef(env="KEY").read() == "sk-2"
    assert SecretRef(credential="key").read() == "sk-1"
    assert SecretRef(credential="key").spec() == {"file": str(file)}
    assert SecretRef(env="KEY").spec() == {"env": "KEY"}


def test_a_secret_never_shows() -> None:
    """Neither in a repr, nor in the error about a literal one."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(SecretRef).validate_python("sk-very-secret")
    assert "never write it here" in str(caught.value)
    assert "sk-very-secret" not in str(caught.value)


def test_a_secret_has_exactly_one_place(tmp_path: Path) -> None:
    """Neither none nor two; and an empty file holds none."""
    with pytest.raises(ValidationError, match="exactly one"):
        SecretRef()
    with pytest.raises(ValidationError, match="exactly one"):
        SecretRef(env="A", file="/a")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ValueError, match="holds no secret"):
        SecretRef(file=str(tmp_path / "empty")).read()


@pytest.mark.parametrize("key", ["sk-\N{CYRILLIC SMALL LETTER KA}ey", "sk-\x07key"])
def test_a_key_that_no_request_can_carry_is_told_without_it(tmp_path: Path, key: str) -> None:
    """It would break every question to the server, and the error would quote it."""
    (tmp_path / "key").write_text(key)
    with pytest.raises(ValueError, match="holds characters that no request can carry") as caught:
        SecretRef(file=str(tmp_path / "key")).read()
    assert "sk-" not in str(caught.value)


def test_schemas_of_all_types_are_plain_json() -> None:
    """Editors read them."""
    for kind in (ExplicitPath, Duration, Host, PortOrFree, SecretRef):
        json.dumps(TypeAdapter(kind).json_schema())
