"""The text of an alert: what it keeps, what it loses, where it is cut."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from alerts.message import LIMIT, Alert, clean, clip, digest, stamped

ALERT = Alert(
    key="run-1:refused", first_line="SERVING, never touched · 200k-mtp REFUSED", text="why"
)


def units(text: str) -> int:
    """The length as Telegram counts it."""
    return len(text.encode("utf-16-le")) // 2


def test_the_first_line_stays_first_and_the_id_comes_last() -> None:
    """A phone shows the first line only; the id is for the person who sees a message twice."""
    first = stamped(ALERT, 0).text
    assert first == f"{ALERT.first_line}\nwhy\n[{ALERT.ident}]"
    assert stamped(ALERT, 1).text.endswith(f"\n[{ALERT.ident} · try 2]")


def test_one_alert_has_one_id() -> None:
    """The id depends on the key alone, so that a second try is recognised."""
    assert replace(ALERT, text="other").ident == ALERT.ident
    assert replace(ALERT, key="run-2:refused").ident != ALERT.ident


def test_a_text_that_holds_its_first_line_is_not_doubled() -> None:
    """Whoever makes an alert may give the whole text or only what follows the first line."""
    assert Alert(key="k", first_line="a", text="a\nb").whole == "a\nb"
    assert Alert(key="k", first_line="a", text="b").whole == "a\nb"
    assert Alert(key="k", first_line="a").whole == "a"


@given(st.text(st.characters(codec=None), max_size=8000), st.integers(0, 5))
def test_every_text_fits_and_can_be_encoded(text: str, tries: int) -> None:
    """Any text, lone surrogates included, becomes valid UTF-8 within the limit, id included."""
    sent = stamped(Alert(key="k", first_line=text), tries).text
    sent.encode()
    assert units(sent) <= LIMIT
    assert sent.splitlines()[-1].startswith("[")


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=100), st.integers(10, 60))
def test_a_cut_splits_no_character(text: str, limit: int) -> None:
    """What is cut is a beginning of the text, and says that it was cut."""
    cut = clip(text, limit)
    assert units(cut) <= limit
    kept, mark, _ = cut.rpartition(" … [cut]")
    assert cut == text if not mark else text.startswith(kept)


def test_a_name_cannot_play_tricks_on_a_screen() -> None:
    """Escape sequences, bells and marks that turn the reading direction come out harmless."""
    shown = clean("a\x1b[31m\x07b\u202egnp.exe\tc\nd")
    assert shown == "a\ufffd[31m\ufffdb\ufffdgnp.exe\tc\nd"


def test_an_empty_text_is_said_to_be_empty() -> None:
    """Telegram refuses an empty message, and an alert that says nothing is still an alert."""
    assert clean(" \n\x00 ").replace("\ufffd", "").strip() == ""
    assert clean(" \n ") == "(no text)"


def test_a_digest_names_every_alert() -> None:
    """The newest is told whole, each other with its first line and its own id and try."""
    alerts = [
        (replace(ALERT, key=f"k{n}", first_line=f"alert {n} " + "x" * 300), n) for n in range(9)
    ]
    merged = digest(alerts)
    assert merged.first_line.startswith("alert 8 ")
    assert units(merged.text) <= LIMIT
    for alert, tries in alerts:
        assert alert.ident in merged.text
        assert tries == 0 or f"[{alert.ident} · try {tries + 1}]" in merged.text
    assert "8 earlier, newest first:" in merged.text
