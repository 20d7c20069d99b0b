"""All that could act dies at once, on a real systemd: the slice of these tests that every run takes."""

from tests.systemd.box import UNIT, Box


def test_kill_9_of_the_daemon_the_run_and_its_guardian(box: Box) -> None:
    """While production is down: it is back, the run has its outcome, and a person is told."""
    before = box.show(UNIT, "InvocationID")
    run = box.night()
    box.restored(before, box.kill("runner.service", run, box.guardian()))
    last = box.last()
    assert (last["outcome"], last["exit_code"]) == ("interrupted", 137)
    assert last["production"]["state"] == "serving"
    box.until(lambda: any(last["headline"].split(" · ")[0] in text for text in box.told()))
    assert box.show("runner.service", "ActiveState") in {"active", "activating"}
