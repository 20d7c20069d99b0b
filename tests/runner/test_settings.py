"""runner.toml: ten lines are enough, and each mistake is named with its line and what to do."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from alerts.telegram import Telegram
from jobs.errors import ConfigError
from jobs.servers import LlamaCpp
from runner.settings import Settings, load_settings, secrets_of
from runner.supervisors import Systemd

SHORTEST = """\
timezone = "Europe/Berlin"

[[production]]
name = "llm"
kind = "llamacpp"
port = 8080
supervisor = { kind = "systemd", unit = "llama.service", scope = "system" }

[[schedule]]
job  = "200k-mtp"
cron = "0 0 * * *"

[[alerts.channel]]
kind    = "telegram"
token   = { credential = "telegram-token" }
chat_id = -1001234567890
"""

SERVICE = """
[[production]]
name = "{name}"
kind = "llamacpp"
port = {port}
supervisor = {{ kind = "process", log = "/var/log/llm.log" }}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The file to write to."""
    return tmp_path / "runner.toml"


def load(config: Path, text: str) -> Settings:
    """The settings in this text."""
    config.write_text(text)
    return load_settings(config)


def refusal(config: Path, text: str) -> str:
    """Why this text is refused, in one line a problem, without the directory."""
    with pytest.raises(ConfigError) as caught:
        load(config, text)
    return str(caught.value).replace(f"{config.parent}/", "")


def test_the_shortest_useful_configuration_loads(config: Path) -> None:
    """Everything else has a default."""
    settings = load(config, SHORTEST)
    (service,) = settings.production
    assert isinstance(service, LlamaCpp)
    assert (service.name, service.port) == ("llm", 8080)
    assert service.supervisor == Systemd(unit="llama.service")
    assert isinstance(settings.alerts.channel[0], Telegram)
    assert settings.jobs_dir == str(config.parent / "jobs")
    assert settings.schedule[0].late_by == 7200
    assert settings.zone.key == "Europe/Berlin"
    assert settings.service("llm") is service
    assert settings.service("embed") is None


def test_an_empty_configuration_is_a_box_without_production(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to stop, and the box's own timezone holds."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/runner")
    settings = load(config, "")
    assert settings.production == ()
    assert settings.timezone == "Asia/Tokyo"
    assert settings.state_dir == "/var/lib/runner"


def test_settings_cannot_be_changed_after_loading(config: Path) -> None:
    """What a run does was decided when it began."""
    settings = load(config, SHORTEST)
    with pytest.raises(ValidationError):
        settings.timezone = "UTC"  # type: ignore[misc]  # which is what is tested


def test_a_broken_file_is_refused_with_the_line(config: Path) -> None:
    """Not with a traceback of the parser."""
    assert refusal(config, SHORTEST + "broken\n").startswith("runner.toml:17: is not TOML")


def test_a_missing_file_says_so(config: Path) -> None:
    """It is the same kind of error as a wrong one."""
    with pytest.raises(ConfigError, match="no such file"):
        load_settings(config)


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ('zone = "UTC"', "timezone =", "zone: unknown key"),
        ('timezone = "Mars/Olympus"', "timezone =", "is no timezone"),
        ("timezone = 1", "timezone =", "timezone: should be text in quotes, not a whole number"),
        ("prot = 8080", "port =", "production.prot: unknown key; did you mean `port`?"),
        ('port = "8080"', "port =", "production.port: should be a whole number, not text"),
        ('name = "l/lm"', "name =", "`l/lm` has a slash"),
        ('host = "localhost"\nport = 8080', "port =", "write 127.0.0.1"),
        ('model = "~/m.gguf"\nport = 8080', "port =", "`~` is for shells"),
        ('model = "/m/*.gguf"\nport = 8080', "port =", "`*` is a glob"),
        ('model = "m.gguf"\nport = 8080', "port =", "is a relative path"),
        ("ready_within = 900\nport = 8080", "port =", "write it as text with its unit"),
        ('job = "200k/mtp"', "job ", "`200k/mtp` has a slash"),
        ('cron = "midnight"', "cron =", "is no cron expression"),
        ('token = "123456:abc"', "token ", "a secret is never written into the config"),
        ("chat = 5", "chat_id", "alerts.channel.chat: unknown key; did you mean `chat_id`?"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_what_to_do(
    config: Path, wrong: str, right: str, said: str
) -> None:
    """Each problem is `file:line: key: what → what to do`."""
    lines = SHORTEST.splitlines()
    place = next(n for n, line in enumerate(lines) if line.startswith(right))
    lines[place : place + 1] = wrong.splitlines()
    told = refusal(config, "\n".join(lines))
    found = next(line for line in told.splitlines() if said in line)
    assert found.startswith(f"runner.toml:{place + 1}: ")
    assert " → " in found or "write it as" in found


def test_an_unknown_kind_names_the_kinds_there_are(config: Path) -> None:
    """With a guess where it is close to one."""
    told = refusal(config, SHORTEST.replace("llamacpp", "llama.cpp"))
    assert "there is no kind `llama.cpp`; did you mean `llamacpp`? → kinds there are:" in told


def test_every_mistake_is_told_at_once(config: Path) -> None:
    """Nobody wants to learn of them one by one."""
    told = refusal(config, SHORTEST.replace("port", "prot").replace("cron", "corn"))
    assert "prot" in told
    assert "corn" in told


def test_a_key_under_the_wrong_header_is_sent_to_its_place(config: Path) -> None:
    """TOML takes a top key after a table for a key of that table."""
    told = refusal(config, SHORTEST + 'state_dir = "/srv/runner"\n')
    assert "`state_dir` belongs to the top of the file" in told


def test_a_configuration_of_a_newer_version_names_both_versions(config: Path) -> None:
    """Its other keys are not even looked at: this runner cannot know what they mean."""
    told = refusal(config, 'version = 2\nnew_key = "x"\n')
    assert told.startswith("runner.toml:1: version: is 2, written for a newer runner; runner ")
    assert "understands version 1 → upgrade runner" in told
    assert len(told.splitlines()) == 1
    assert load(config, "version = 1\n").version == 1


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ('kind = "vllm"', "kind = ", "`vllm` is not in this version"),
        (
            'supervisor = { kind = "docker", container = "x" }',
            "supervisor",
            "`docker` is not in this version",
        ),
        ("keep_up = true\nport = 1", "port", "production.keep_up"),
        ('kind = "apprise"', "kind    =", "`apprise` is not in this version"),
        ('heartbeat = "x"\njob = "a"', "job", "a dead man's switch is not in this version"),
    ],
)
def test_what_would_silently_do_nothing_is_refused(
    config: Path, wrong: str, right: str, said: str
) -> None:
    """A pin that pins nothing, or a channel that tells nobody, would be trusted."""
    lines = SHORTEST.splitlines()
    place = next(n for n, line in enumerate(lines) if line.startswith(right))
    lines[place : place + 1] = wrong.splitlines()
    told = [line for line in refusal(config, "\n".join(lines)).splitlines() if said in line]
    assert len(told) == 1


def test_quiet_hours_are_refused(config: Path) -> None:
    """An alert at night is what this is for."""
    told = refusal(config, SHORTEST + '[alerts]\nquiet_hours = "22:00-06:00"\n')
    assert "quiet" in told or "cannot declare" in told.lower()


def test_two_services_cannot_share_a_name_or_a_port(config: Path) -> None:
    """The line of the second one is named, and the first one's name."""
    service = SHORTEST.partition("[[schedule]]")[0]
    twice = service + service.partition("\n\n")[2]
    told = refusal(config, twice)
    assert "runner.toml:10: production.name: `llm` is the name of two services" in told
    assert "runner.toml:12: production.port: 8080 is the port of `llm` too" in told


def test_a_process_service_needs_its_command(config: Path) -> None:
    """Where we start it, nobody else knows how."""
    told = refusal(config, SERVICE.format(name="llm", port=8080))
    assert "production.supervisor: `process` starts it from here, but it" in told


def test_a_service_listens_somewhere(config: Path) -> None:
    """Without a port nobody could tell whether it serves."""
    text = SHORTEST.replace("port = 8080\n", "")
    assert "has no port" in refusal(config, text)


def test_a_fallback_is_the_service_with_its_differences(config: Path) -> None:
    """What it does not name stays as the service has it."""
    text = """
[[production]]
name = "llm"
kind = "llamacpp"
binary = "/opt/llama-server"
model = "/models/v3.gguf"
context = 32768
port = 8080
supervisor = { kind = "process", log = "/var/log/llm.log" }
[[production.fallback]]
model = "/models/v2.gguf"
[[production.fallback]]
command = ["/opt/old-server", "-m", "/models/v1.gguf", "--port", "8080"]
"""
    (service,) = load(config, text).production
    second, first = service.fallen_back()
    assert (second.model, second.context, second.binary) == (
        "/models/v2.gguf",
        32768,
        "/opt/llama-server",
    )
    assert first.binary is None
    assert first.command is not None
    assert (first.name, first.port) == ("llm", 8080)


def test_services_start_in_the_order_of_the_file(config: Path) -> None:
    """And are stopped last first."""
    text = 'timezone = "UTC"\n' + "".join(
        SERVICE.format(name=name, port=port).replace(
            "port =", 'binary = "/opt/s"\nmodel = "/m.gguf"\nport ='
        )
        for name, port in (("embed", 8081), ("llm", 8080))
    )
    assert [service.name for service in load(config, text).production] == ["embed", "llm"]


def test_the_secrets_it_names_are_known_by_value(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that they can be hidden wherever they turn up; what cannot be read cannot leak either."""
    key = config.with_name("key")
    key.write_text("hunter2hunter2\n")
    monkeypatch.setenv("TELEGRAM_TOKEN", "123456789:AAabcdefghijklmnopqrstuvwxyz012345678")
    text = SHORTEST.replace("port = 8080", f'port = 8080\napi_key = {{ file = "{key}" }}')
    text = text.replace('credential = "telegram-token"', 'env = "TELEGRAM_TOKEN"')
    settings = load(config, text)
    assert secrets_of(settings)[0] == "hunter2hunter2"
    assert secrets_of(settings)[1].startswith("123456789:")
    key.unlink()
    assert len(secrets_of(settings)) == 1
