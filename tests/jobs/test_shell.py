"""A command as a list or one string: no shell runs, and nothing that needs one is let through."""

import pytest

from jobs.shell import (
    WRAPPERS,
    executed,
    manager_words,
    program_at,
    split,
    word_list,
    words,
)


def test_a_string_is_split_like_a_shell_would() -> None:
    """Quotes and escapes keep what belongs together."""
    assert split("/bin/x -m '/m/a b.gguf' --alias \"my model\" a\\ b") == (
        "/bin/x", "-m", "/m/a b.gguf", "--alias", "my model", "a b",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("/bin/x | tee log", "`|`"),
        ("/bin/x > log", "`>`"),
        ("/bin/x >> log", "`>>`"),
        ("/bin/x < in", "`<`"),
        ("/bin/x && /bin/y", "`&&`"),
        ("/bin/x || /bin/y", "`||`"),
        ("/bin/x; /bin/y", "`;`"),
        ("/bin/x &", "`&`"),
        ("(/bin/x)", "`(`"),
        ("/bin/x `date`", "backtick"),
        ("/bin/x $(date)", "`$(`"),
        ('/bin/x "$(date)"', "`$(`"),
        ("/bin/x $HOME/m", "`$HOME"),
        ('/bin/x "${HOME}/m"', "`${HOME"),
        ("/bin/x /m/*.gguf", "`*`"),
        ("/bin/x ~/m", "`~`"),
        ("/bin/x # note", "comment"),
        ("/bin/x\n/bin/y", "line break"),
    ],
)
def test_what_only_a_shell_does_is_refused_by_its_name(text: str, named: str) -> None:
    """The sentence names the operator, so that it can be found."""
    with pytest.raises(ValueError, match="no shell runs here") as caught:
        words(text)
    assert named in str(caught.value)


def test_quoted_operators_are_only_text() -> None:
    """A pattern of tensor names is full of signs that a shell would take."""
    assert words("/bin/x -ot 'blk\\..*ffn|exps=CPU' \"a > b\"")[2:] == (
        "blk\\..*ffn|exps=CPU", "a > b",
    )  # fmt: skip


def test_an_open_quote_is_told() -> None:
    """shlex's own words, made a sentence."""
    with pytest.raises(ValueError, match="cannot be split"):
        words("/bin/x 'open")


@pytest.mark.parametrize("value", [[], "", [""], 5, ["/bin/x", 5]])
def test_what_is_no_command_is_refused(value: object) -> None:
    """Nothing, and things that are no words."""
    with pytest.raises(ValueError, match=r"empty|neither a list"):
        words(value)


@pytest.mark.parametrize(
    "value", [["/bin/x", "|", "tee"], ["/bin/x", "2>&1"], ["/bin/x", "&&"], ["/bin/x", ">"]]
)
def test_an_operator_in_a_list_is_a_leftover(value: list[str]) -> None:
    """Somebody split a shell line by hand."""
    with pytest.raises(ValueError, match="shell operator"):
        words(value)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (["/bin/x", "-m", "/m/*.gguf"], "glob"),
        (["/bin/x", "-m", "~/m.gguf"], "`~`"),
        (["/bin/x", "$MODEL"], "variables"),
    ],
)
def test_a_word_of_a_list_is_literal(value: list[str], why: str) -> None:
    """Nothing expands it, so what asks for it is refused."""
    with pytest.raises(ValueError, match=why):
        words(value)


@pytest.mark.parametrize("program", sorted(WRAPPERS))
def test_programs_that_hand_the_work_on_are_refused(program: str) -> None:
    """Nobody here could end what they start; not with a path and not behind env either."""
    for argv in ([program, "x"], [f"/usr/bin/{program}", "x"], ["/usr/bin/env", "A=1", program]):
        with pytest.raises(ValueError, match="hands the work"):
            words(argv)


def test_a_program_is_named_by_its_whole_path() -> None:
    """PATH is another one at midnight."""
    with pytest.raises(ValueError, match="whole path of the program"):
        words("llama-server -m /m.gguf")


def test_a_shell_line_behind_a_shell_is_refused() -> None:
    """`bash -c` hides the command; a script of one's own is fine."""
    with pytest.raises(ValueError, match="hides the real command"):
        words(["/bin/bash", "-lc", "x"])
    assert words(["/bin/bash", "/srv/start.sh"])


@pytest.mark.parametrize(
    ("argv", "at"),
    [
        (("/bin/llama-server", "-c", "1"), 0),
        (("/usr/bin/taskset", "-c", "0", "/bin/llama-server", "-c", "1"), 3),
        (("/usr/bin/env", "A=1", "/usr/bin/nice", "/bin/x"), 3),
        (("/usr/bin/python3", "-u", "/srv/server.py", "/m"), 2),
        (("/usr/bin/env",), 0),
    ],
)
def test_the_program_stands_behind_its_launchers(argv: tuple[str, ...], at: int) -> None:
    """`taskset -c 0` is no context size."""
    assert program_at(argv) == at


def test_scripts_are_no_programs() -> None:
    """They are read by an interpreter and need no execute bit."""
    assert executed(("/usr/bin/nice", "/usr/bin/python3", "/srv/server.py")) == (
        ("/usr/bin/nice", "/usr/bin/python3"), ("/srv/server.py",),
    )  # fmt: skip
    assert executed(("/bin/x", "/m")) == (("/bin/x",), ())


def test_arguments_need_no_program() -> None:
    """`args` begins with a flag."""
    assert word_list("-t 2") == ("-t", "2")
    assert word_list(["-t", "2"]) == ("-t", "2")


@pytest.mark.parametrize(
    "argv",
    [
        ["/usr/bin/docker", "stop", "llm"],
        ["/usr/bin/sudo", "-n", "/usr/bin/systemctl", "stop", "llm"],
        ["/usr/bin/timeout", "60", "/usr/bin/docker", "stop", "llm"],
    ],
)
def test_a_command_to_a_manager_may_go_through_it(argv: list[str]) -> None:
    """What stops a container is its engine: only what is to run here must be the program itself."""
    assert manager_words(argv) == tuple(argv)
    with pytest.raises(ValueError, match="hands the work"):
        words(argv)


@pytest.mark.parametrize(
    "command", ["docker stop llm", ["sh", "-c", "x"], "", "/usr/bin/docker stop $X"]
)
def test_a_command_to_a_manager_is_as_explicit_as_any(command: object) -> None:
    """By its whole path, without a shell, without variables."""
    with pytest.raises(ValueError, match=r"."):
        manager_words(command)
