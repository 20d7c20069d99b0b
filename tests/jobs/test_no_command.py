"""A server whose command line nobody knows yet."""

from jobs.servers import LlamaCpp


def test_a_server_that_is_down_under_systemd_can_still_be_asked() -> None:
    """Its supervisor owns the command line, so there is none to read while it is down."""
    probe = LlamaCpp(port=8080).ready()
    assert probe["base"] == "http://127.0.0.1:8080"
    assert probe["health"] == "/health"
