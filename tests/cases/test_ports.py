"""Fault: another session's proxy has taken a port, and answers 200 to everything."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from preflight.linux import proc
from tests.cases.card import Card
from tests.cases.conftest import script
from tests.e2e.night import Night, get
from tests.servers import soon


@contextmanager
def a_stranger(port: int) -> Iterator[int]:
    """Somebody's proxy on this port; at the end it must still be there, untouched."""
    argv = script("stranger", "--host", "127.0.0.1", "--port", str(port))
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL) as process:
        try:
            soon(lambda: get(port, "/anything") == 200 or None)
            yield process.pid
            assert process.poll() is None
        finally:
            process.kill()


def test_a_stranger_on_the_jobs_port_is_named_and_left_alone(serving: Night) -> None:
    """Its 200 is not taken for our server, it is not ended, and no other port is taken instead."""
    before = proc.ident(serving.serving())
    with a_stranger(serving.candidate_port) as pid:
        ran = serving.run()
    assert ran.code == 3, str(ran)
    (verdict,) = ran.check("port.owner", "fail")
    for word in (f"pid {pid}", "stranger.py", str(serving.candidate_port)):
        assert word in verdict["message"]
        assert word in serving.told()
    assert proc.ident(serving.serving()) == before
    assert serving.told().count("REFUSED") == 1
    assert ran.json["production"]["stopped_at"] is None


def test_a_stranger_on_productions_port_is_no_production(night: Night, card: Card) -> None:
    """Production went, and somebody took its place: nothing is stopped, and the alert says who."""
    service = night.service()
    night.job()
    card.holds({})
    with a_stranger(service["port"]) as pid:
        ran = night.run()
        assert get(service["port"], "/health") == 200
    assert ran.code == 3, str(ran)
    (verdict,) = ran.check("port.owner", "fail")
    assert verdict["wanted"] == "llm"
    assert f"pid {pid}" in night.told()
    assert "stranger.py" in night.told()
    assert ran.json["production"]["stopped_at"] is None
    assert night.candidates() == []
