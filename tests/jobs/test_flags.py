"""Changing a command line flag by flag: which names are one flag, and where its value ends."""

import pytest

from jobs.flags import Flags, derive, faults, has, pieces, value_of, values_of
from jobs.servers.llamacpp_flags import FLAGS

LIVE = (
    "/opt/llama-server", "-m", "/m/a.gguf", "-c", "65536", "--no-mmap", "-fa", "on",
    "--mmproj", "/m/mm.gguf", "-np", "-1", "-ngl", "all", "--port", "8080",
)  # fmt: skip


def test_a_flag_is_replaced_where_it_stood_under_any_of_its_names() -> None:
    """`--ctx-size` overrules `-c`; nothing is given twice."""
    made = derive(LIVE, {"--ctx-size": "200000", "--n-gpu-layers": "40"}, (), FLAGS)
    assert made[3:5] == ("--ctx-size", "200000")
    assert made[12:14] == ("--n-gpu-layers", "40")
    assert len(made) == len(LIVE)


def test_a_new_flag_is_added_at_the_end() -> None:
    """Also a switch, which has no value."""
    made = derive(LIVE, {"--metrics": True, "-lv": "4"}, (), FLAGS)
    assert made == (*LIVE, "--metrics", "-lv", "4")


def test_a_dropped_flag_takes_its_value_along() -> None:
    """And a switch nothing."""
    made = derive(LIVE, {}, ("-mm", "--mmap"), FLAGS)
    assert made == (*LIVE[:5], *LIVE[6:8], *LIVE[10:])


def test_the_opposite_of_a_switch_is_the_same_flag() -> None:
    """`--mmap` and `--no-mmap` overrule each other."""
    assert derive(("x", "--no-mmap"), {"--mmap": True}, (), FLAGS) == ("x", "--mmap")


def test_a_negative_number_is_a_value() -> None:
    """`-np -1` is one flag, not two."""
    assert value_of(LIVE, "--parallel", FLAGS) == "-1"


def test_a_flag_that_may_stand_alone_takes_only_its_own_words() -> None:
    """`-fa` without a value is old style; the next flag is not its value."""
    assert value_of(("x", "-fa", "-c", "1"), "-fa", FLAGS) is None
    assert value_of(("x", "-fa", "off", "-c", "1"), "-fa", FLAGS) == "off"
    assert value_of(("x", "-fa", "-c", "1"), "-c", FLAGS) == "1"


def test_a_flag_that_nobody_knows_is_guessed() -> None:
    """A newer server has flags that are not in the table."""
    argv = ("x", "--new", "5", "--newer", "--newest=a=b", "-c", "1")
    assert value_of(argv, "--new", FLAGS) == "5"
    assert value_of(argv, "--newer", FLAGS) is None
    assert value_of(argv, "--newest", FLAGS) == "a=b"
    assert derive(argv, {"--newest": "c"}, ("--new",), FLAGS) == (
        "x", "--newer", "--newest=c", "-c", "1",
    )  # fmt: skip


def test_repeated_flags_become_what_was_set() -> None:
    """A list sets a flag as often as it has values."""
    argv = ("x", "--lora", "/a", "--lora", "/b")
    assert values_of(argv, "--lora", FLAGS) == ("/a", "/b")
    assert derive(argv, {"--lora": ("/c", "/d")}, (), FLAGS) == (
        "x",
        "--lora",
        "/c",
        "--lora",
        "/d",
    )


def test_flags_of_a_launcher_are_not_the_servers() -> None:
    """`taskset -c 0` is no context size."""
    argv = ("/usr/bin/taskset", "-c", "0", "/opt/llama-server", "-c", "4096")
    assert derive(argv, {"--ctx-size": "8192"}, (), FLAGS) == (*argv[:4], "--ctx-size", "8192")


def test_nothing_changes_nothing() -> None:
    """Whatever a command line holds, its pieces put together are the same again."""
    assert derive(LIVE, {}, (), FLAGS) == LIVE
    assert tuple(word for piece in pieces(LIVE, FLAGS) for word in piece.words) == LIVE


def test_a_last_flag_without_value_is_no_crash() -> None:
    """A command line may end anywhere."""
    assert value_of(("x", "-c"), "-c", FLAGS) is None
    assert has(("x", "-c"), "--ctx-size", FLAGS)
    assert faults(("x", "-c"), FLAGS) == [
        ("`-c` has no value", "add its value, or remove the flag")
    ]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("-c", "1k"), "would misread `1k`"),
        (("-c", "200_000"), "would misread `200_000`"),
        (("-ngl", "most"), "would misread `most`"),
        (("--temp", "warm"), "would misread `warm`"),
        (("-m", "model.gguf"), "relative path"),
        (("-c", "1", "--ctx-size", "2"), "are the same flag"),
        (("-md", "/a", "--model-draft", "/b"), "are the same flag"),
    ],
)
def test_what_the_server_would_misread_is_told(argv: tuple[str, ...], said: str) -> None:
    """`-c 1k` is a context of one token, and the last of two names wins without a word."""
    assert any(said in message for message, _ in faults(("x", *argv), FLAGS))


def test_a_fault_never_repeats_free_text() -> None:
    """A key given twice is told without the key."""
    ((message, _),) = faults(("x", "--api-key", "sk-1", "--api-key", "sk-2"), FLAGS)
    assert message.startswith("`--api-key` and `--api-key` are the same flag")


def test_a_sound_command_line_has_no_faults() -> None:
    """Among them repeated adapters, negative and decimal numbers."""
    assert faults(LIVE, FLAGS) == []
    assert faults(("x", "--lora", "/a", "--lora", "/b", "--temp", "0.7", "-s", "-1"), FLAGS) == []


def test_every_line_of_the_table_is_sound() -> None:
    """No name belongs to two flags, and each kind is a known one."""
    names = [name for flag in FLAGS.all for name in flag.names]
    assert len(names) == len(set(names))
    assert all(name.startswith("-") for name in names)
    assert {flag.kind for flag in FLAGS.all} == {
        "switch", "int", "float", "layers", "on", "path", "text",
    }  # fmt: skip
    assert FLAGS.find("-c") is FLAGS.of_env("LLAMA_ARG_CTX_SIZE")


def test_without_a_table_each_name_is_its_own_flag() -> None:
    """A server whose flags are not known."""
    plain = Flags()
    argv = ("x", "--port", "1", "-p", "2")
    assert derive(argv, {"--port": "3"}, ("-p",), plain) == ("x", "--port", "3")
