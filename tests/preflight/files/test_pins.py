"""Are the pinned bytes still the ones that were pinned, and do they lie where they are needed?"""

import pytest

from preflight.box import TIMEOUT, FileFact, Me
from preflight.files.pins import Pin, Pinned
from preflight.rings import look
from preflight.verdict import State, Verdict
from tests.fakes import UID, FakeBox, a_file, missing

PATH, KEPT = "/m/model.gguf", "/var/lib/runner/pins/1"
FACT = a_file(KEPT)


def ask(*facts: FileFact, back: bool = False, who: int = UID) -> Verdict:
    """The answer about one pin."""
    pin = Pin(path=PATH, pin=KEPT, inode=FACT.inode, size=FACT.size, mtime_ns=FACT.mtime_ns)
    box = FakeBox(who=Me(who, "runner", None, None)).has(*facts)
    return look([Pinned(owner="night", pins=(pin,), back=back)], box).verdicts[0]


@pytest.mark.parametrize(
    ("fact", "state", "said"),
    [
        (FACT, State.PASS, "1 file is kept, as pinned"),
        (missing(KEPT), State.FAIL, "no longer what was pinned: model.gguf"),
        (a_file(KEPT, mtime_ns=1), State.FAIL, "no longer what was pinned: model.gguf"),
        (a_file(KEPT, size=1), State.FAIL, "no longer what was pinned"),
        (a_file(KEPT, inode=1), State.FAIL, "no longer what was pinned"),
        (missing(KEPT, fault=TIMEOUT, said="no answer"), State.UNKNOWN, "cannot be looked at"),
    ],
)
def test_what_was_pinned_is_what_is_kept(fact: FileFact, state: State, said: str) -> None:
    """A link survives deleting and renaming, and no overwriting."""
    verdict = ask(fact)
    assert verdict.state is state
    assert said in verdict.found


def test_an_unknown_pin_is_never_accepted() -> None:
    """The way back may rest on it."""
    pin = Pin(path=PATH, pin=KEPT, inode=1, size=1, mtime_ns=1)
    box = FakeBox().has(missing(KEPT, fault=TIMEOUT, said="no answer"))
    check = Pinned(owner="night", pins=(pin,))
    assert look([check], box, accept={"file.pin": "I know"}).passed is None


@pytest.mark.parametrize(
    ("at_path", "who", "state", "said"),
    [
        (a_file(PATH, inode=FACT.inode), UID, State.PASS, "as pinned"),
        (a_file(PATH, inode=99), UID, State.WARN, "another file lies there now"),
        (missing(PATH, nearest_writable=True), UID, State.WARN, "the pin is put back before"),
        (missing(PATH), UID, State.FAIL, "runner may not put it back: model.gguf"),
        (missing(PATH), 0, State.WARN, "the pin is put back before"),
    ],
)
def test_productions_pins_can_be_put_back_to_where_they_are_needed(
    at_path: FileFact, who: int, state: State, said: str
) -> None:
    """Gone, it is put back before the stop; who may not do that refuses."""
    verdict = ask(FACT, at_path, back=True, who=who)
    assert verdict.state is state
    assert said in verdict.found
