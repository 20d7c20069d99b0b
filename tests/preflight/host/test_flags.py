"""The flags of a start, against what the program's own --help says."""

from typing import Any

import pytest

from preflight.box import TIMEOUT, Ran
from preflight.host.flags import Flags, helped
from preflight.linux.box import LinuxBox
from preflight.rings import look
from preflight.verdict import State, Verdict
from runner.demo import parts
from tests.fakes import FakeBox

PROGRAM = "/opt/llama/llama-server"
HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
-t,    --threads N                      number of CPU threads (default: -1)
                                        (env: LLAMA_ARG_THREADS)
-c,    --ctx-size N                     size of the prompt context (default: 0, 0 = loaded from
                                        model)
                                        (env: LLAMA_ARG_CTX_SIZE)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use (default: 'auto')
                                        (env: LLAMA_ARG_FLASH_ATTN)
-ctk,  --cache-type-k TYPE              KV cache data type for K
                                        allowed values: f32, f16, bf16, q8_0, q4_0
                                        (default: f16)
                                        (env: LLAMA_ARG_CACHE_TYPE_K)
--mlock                                 DEPRECATED in favor of `--load-mode`: force system to keep
                                        model in RAM
-sm,   --split-mode {none,layer,row}    how to split the model across multiple GPUs
--cpu-strict <0|1>                      use strict CPU placement (default: 0)
--spec-type none,draft-simple,draft-mtp
                                        comma-separated list of types
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max or
                                        --spec-ngram-mod-n-max
                                        (env: LLAMA_ARG_DRAFT_MAX)
--spec-draft-n-max N                    number of tokens to draft (default: 3)
--spec-ngram-min-hits N                 the argument has been removed. use the respective
                                        --spec-ngram-*-min-hits
--kv-offload, -nkvo, --no-kv-offload
                                        whether to enable KV cache offloading
-m, --model FNAME                       model path
--port PORT                             port to listen (default: 8080)
"""


def ask(*given: tuple[str, str | None], text: str = HELP, **more: Any) -> Verdict:
    """The answer about these flags."""
    box = FakeBox(commands={(PROGRAM, "--help"): Ran(0, text)})
    check = Flags(program=PROGRAM, flags=given, **more)
    return look([check], box).verdicts[0]


def test_the_help_is_read_entry_by_entry() -> None:
    """Names, replacements, allowed values and variables, also where a line is broken."""
    known = helped(HELP)
    assert known["-c"] is known["--ctx-size"]
    assert known["-c"].env == "LLAMA_ARG_CTX_SIZE"
    assert known["-ctk"].allowed == ("f32", "f16", "bf16", "q8_0", "q4_0")
    assert known["--split-mode"].allowed == ("none", "layer", "row")
    assert known["--spec-type"].allowed == ("none", "draft-simple", "draft-mtp")
    assert known["--cpu-strict"].allowed == ()
    assert known["--draft-n"].removed == "--spec-draft-n-max or --spec-ngram-mod-n-max"
    assert known["-nkvo"].removed is None
    assert known["--mlock"].deprecated


def test_flags_that_the_build_knows_pass() -> None:
    """With values it takes, or none to choose from."""
    verdict = ask(
        ("-c", "200000"), ("-fa", "1"), ("-ctk", "q4_0"), ("--spec-type", "none,draft-mtp")
    )
    assert verdict.state is State.PASS
    assert verdict.found == "all 4 flags are known to this build"


def test_a_removed_flag_is_told_with_what_replaced_it() -> None:
    """An old launch script after an upgrade ends the start."""
    verdict = ask(("--draft-max", "8"))
    assert verdict.state is State.FAIL
    assert verdict.found == "--draft-max has been removed from this build"
    assert verdict.remedy == "use --spec-draft-n-max or --spec-ngram-mod-n-max"


def test_a_flag_that_a_build_never_had_is_told_with_what_is_near() -> None:
    """By what is known of its history, else by its letters."""
    assert ask(("--draft-min", "1")).remedy == "use --spec-draft-n-min"
    verdict = ask(("--ctx-siez", "4096"))
    assert (verdict.state, verdict.remedy) == (State.FAIL, "use --ctx-size")


def test_a_value_that_is_not_allowed_is_told_with_the_nearest() -> None:
    """The server would refuse it after production was stopped."""
    verdict = ask(("--spec-type", "draft-mpt"))
    assert verdict.state is State.FAIL
    assert verdict.remedy == "did you mean draft-mtp?"
    assert "one of f32, f16" in ask(("-ctk", "whatever")).remedy


def test_a_deprecated_flag_is_a_warning() -> None:
    """It works tonight."""
    verdict = ask(("--mlock", None))
    assert (verdict.state, verdict.remedy) == (State.WARN, "use --load-mode mlock")


def test_the_worst_is_told_first_and_the_rest_beside_it() -> None:
    """One look names all of them."""
    verdict = ask(("--mlock", None), ("--draft", "3"), ("--nope", None))
    assert verdict.state is State.FAIL
    assert len(verdict.evidence) == 2


def test_what_the_environment_configures_is_told() -> None:
    """Nobody looks there, and the job's file does not say it."""
    verdict = ask(environment=(("LLAMA_ARG_CTX_SIZE", "8192", "--ctx-size"),))
    assert verdict.state is State.WARN
    assert verdict.found == "LLAMA_ARG_CTX_SIZE=8192 in the environment sets --ctx-size unseen"
    misread = ask(misread=("LLAMA_ARG_CTX_SIZE=8k in the environment: …",))
    assert misread.state is State.FAIL


def test_slots_that_divide_the_context_are_told() -> None:
    """And fail where a share is less than a claim wants."""
    verdict = ask(slots=4, context=200_000)
    assert verdict.state is State.WARN
    assert "4 slots divide the context: 50,000 of 200,000 tokens each" in verdict.found
    wanted = ask(slots=4, context=200_000, claimed=200_000)
    assert wanted.state is State.FAIL
    assert "a claim wants 200,000" in wanted.found
    assert ask(slots=4, context=0).state is State.PASS


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (Ran(None, fault=TIMEOUT, said="gave no answer"), "within 10 s (timeout)"),
        (Ran(None, fault="ENOENT", said="No such file"), "No such file"),
        (Ran(0, "usage: something else\n-h, --help  help\n"), "lists no flags"),
        (Ran(127, err="error while loading libcudart.so.12"), "libcudart.so.12"),
    ],
)
def test_a_program_that_tells_no_flags_is_unknown(ran: Ran, said: str) -> None:
    """What cannot be asked is not taken for consent."""
    box = FakeBox(commands={(PROGRAM, "--help"): ran})
    verdict = look([Flags(program=PROGRAM, flags=(("-c", "1"),))], box).verdicts[0]
    assert verdict.state is State.UNKNOWN
    assert said in verdict.found


def test_a_help_of_nonsense_is_survived() -> None:
    """Whatever a program prints, the answer is a verdict."""
    for text in ("", "-", "--", "-,-,-", "\x1b[1m-c,\x1b[0m", "-a [" * 5000, "x" * 100_000):
        assert ask(("-c", "1"), text=text).state is State.UNKNOWN


def test_a_real_llama_server_knows_the_flags_of_its_time() -> None:
    """Its own --help, as it prints it."""
    found = parts.find()
    if found.assemble is None:
        pytest.skip(found.missing)
    program = found.command[0]
    with LinuxBox() as box:
        good = Flags(program=program, flags=(("-c", "4096"), ("--spec-type", "draft-mtp")))
        bad = Flags(program=program, flags=(("--draft-max", "8"), ("-ctk", "q3_0")))
        fine, wrong = (look([check], box).verdicts[0] for check in (good, bad))
    assert fine.state is State.PASS
    assert wrong.state is State.FAIL
    assert "--spec-draft-n-max" in wrong.remedy
    assert any("q3_0 is no value it takes" in said for said in wrong.evidence)
