"""Logging cannot stop a restore, and cannot tell a secret."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import httpx
import pytest

from runner import logs

TOKEN = "123456789:AAabcdefghijklmnopqrstuvwxyz012345678"


@pytest.fixture(autouse=True)
def _root() -> Iterator[None]:
    """The root logger as it was, afterwards."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    logging.captureWarnings(capture=False)


Written = Callable[[], str]


@pytest.fixture
def written(capfd: pytest.CaptureFixture[str]) -> Written:
    """What was logged so far, with every line from info on."""
    logs.configure(level="info")
    return lambda: capfd.readouterr().err


class Unspeakable:
    """A value whose text cannot be had."""

    def __str__(self) -> str:
        """Raise, as half-initialised objects do."""
        raise ValueError("no")

    __repr__ = __str__


def test_a_line_says_when_how_bad_who_and_what(written: Written) -> None:
    """In one line, with its fields."""
    logs.get("runner.run").bind(run="r1").info("stopping", service="llm", why="a b")
    line = written()
    assert " info    runner.run: stopping run=r1 service=llm" in line
    assert 'why="a b"' in line
    assert line[10] == "T"


def test_no_field_can_make_a_log_line_raise(written: Written) -> None:
    """A bad repr, a field named event, an escape sequence: all of it is written, none raised."""
    before = logs.lost()
    logs.get("x").warning("said", bad=Unspeakable(), event="e", esc="\x1b[2J")
    logs.get("x").info(Unspeakable())  # type: ignore[arg-type]  # what a bug would hand in
    text = written()
    assert 'bad="<Unspeakable that cannot be shown>"' in text
    assert "event_=e" in text
    assert "\x1b" not in text
    assert logs.lost() == before


@pytest.mark.parametrize("broken", ["/dev/full", "closed pipe", "closed"])
def test_a_full_disk_or_a_closed_pipe_loses_lines_and_nothing_else(broken: str) -> None:
    """The program goes on, counts them, and its exit code stays its own."""
    program = (
        "from runner import logs; logs.configure(level='info'); log = logs.get('x')\n"
        "for n in range(3): log.info('line')\n"
        "import logging; logging.getLogger('foreign').error('line')\n"
        "raise SystemExit(10 * logs.lost())"
    )
    if broken == "closed pipe":
        reader, stderr = os.pipe()
        os.close(reader)
    else:
        stderr = os.open("/dev/full", os.O_WRONLY)
    command = [sys.executable, "-c", program]
    if broken == "closed":
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    done = subprocess.run(command, stderr=stderr, check=False, timeout=30)
    os.close(stderr)
    assert done.returncode == 40


def test_no_log_line_holds_a_secret(written: Written) -> None:
    """By shape or by value; in text, fields, tracebacks and other people's records (P10)."""
    logs.configure(level="debug", keep=["hunter2hunter2"])
    log = logs.get("x")
    log.warning("refused", url=f"https://api.telegram.org/bot{TOKEN}", key="hunter2hunter2")
    logging.getLogger("urllib3").warning("GET /bot%s/getMe", TOKEN)
    try:
        int(TOKEN)
    except ValueError:
        log.exception("delivery failed")
    text = written()
    assert text.count("[hidden]") == 4
    assert TOKEN not in text
    assert "hunter2" not in text
    assert "ValueError: invalid literal" in text


def test_httpx_does_not_log_its_urls(written: Written) -> None:
    """At INFO it writes every URL, and Telegram's hold the token."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200))
    with httpx.Client(transport=transport) as client:
        client.get(f"https://api.telegram.org/bot{TOKEN}/getMe")
    assert written() == ""


def test_warnings_of_libraries_are_log_lines(written: Written) -> None:
    """They belong to standard error in our form, not between the lines of a report."""
    logging.getLogger("py.warnings").warning("%s", "deprecated")
    assert "py.warnings: deprecated" in written()
