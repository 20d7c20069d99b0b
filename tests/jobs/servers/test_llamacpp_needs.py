"""What preflight learns of a llama-server from its command line, and of its memory from its log."""

from typing import Any

import pytest

from jobs.servers.base import Command
from jobs.servers.llamacpp import LlamaCpp
from jobs.servers.llamacpp_memory import told, without_gpu
from jobs.servers.llamacpp_needs import Words, flag_check, load, roles
from preflight.models.fit import Learned, Load

EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
SERVER = "/opt/llama/llama-server"


def words(*argv: str, env: dict[str, str] | None = None, **inherited: str) -> Words:
    """A command line with its own variables, and those it inherits."""
    return Words(Command((SERVER, *argv), env or {}, "/srv"), inherited)


def seen(*argv: str) -> LlamaCpp:
    """The server of such a command line."""
    return LlamaCpp(command=(SERVER, *argv), port=8080).seen(Command((SERVER, *argv)))


def a_load(*argv: str, **more: Any) -> Load:
    """What such a command line puts on the GPU."""
    found = load(words("-m", "/m/a.gguf", *argv, **more), "candidate", ())
    assert found is not None
    return found


def test_a_plain_command_line_takes_the_servers_own_choices() -> None:
    """Four slots that share one context as long as the training, f16, everything on the GPU."""
    assert a_load().model_dump() == {
        "arm": "candidate",
        "model": "/m/a.gguf",
        "draft": None,
        "mmproj": None,
        "adapters": (),
        "context": 0,
        "slots": 4,
        "unified": True,
        "key": "f16",
        "value": "f16",
        "draft_key": "f16",
        "draft_value": "f16",
        "full_window": False,
        "batch": 512,
        "flash": True,
        "on_gpu": None,
        "overrides": (),
        "draft_on_gpu": None,
        "draft_overrides": (),
        "untold": "",
        "cache_on_host": False,
        "mmproj_on_host": False,
        "mtp": False,
        "drafted": 3,
        "share": 1.0,
    }


FLAGS: list[tuple[list[str], dict[str, object]]] = [
    (["-c", "200000", "-np", "2"], {"context": 200_000, "slots": 2, "unified": False}),
    (["-np", "2", "-kvu"], {"slots": 2, "unified": True}),
    (["-no-kvu"], {"slots": 4, "unified": False}),
    (["-ctk", "q8_0", "-ctv", "q4_0"], {"key": "q8_0", "value": "q4_0"}),
    (
        ["-ctkd", "q4_0", "--spec-draft-type-v", "q8_0"],
        {"draft_key": "q4_0", "draft_value": "q8_0"},
    ),
    (["--spec-type", "draft-mtp", "--spec-draft-n-max", "6"], {"mtp": True, "drafted": 6}),
    (["--spec-type", "none,draft-mtp"], {"mtp": True}),
    (["-md", "draft.gguf"], {"draft": "/srv/draft.gguf"}),
    (["-mm", "/m/p.gguf", "--no-mmproj-offload"], {"mmproj": "/m/p.gguf", "mmproj_on_host": True}),
    (["--lora", "/m/x.gguf,/m/y.gguf"], {"adapters": ("/m/x.gguf", "/m/y.gguf")}),
    (["-ngl", "20"], {"on_gpu": 20}),
    (["-ngl", "all"], {"on_gpu": None}),
    (["-ngl", "-1"], {"on_gpu": None}),
    (["-ncmoe", "2"], {"overrides": ((rf"blk\.(0|1){EXPERTS}", "host"),)}),
    (["-ncmoe", "0"], {"overrides": ()}),
    (["-cmoe"], {"overrides": ((EXPERTS, "host"),)}),
    (
        ["-ot", "blk.[0-3].ffn=CUDA0,output=Vulkan1", "-cmoe", "--override-tensor", "x=CUDA_Host"],
        {
            "overrides": (
                ("blk.[0-3].ffn", "gpu"),
                ("output", "gpu"),
                (EXPERTS, "host"),
                ("x", "host"),
            )
        },
    ),
    (["-otd", "exps=CPU", "-cmoed"], {"draft_overrides": (("exps", "host"), (EXPERTS, "host"))}),
    (["-ngld", "4"], {"draft_on_gpu": 4, "on_gpu": None}),
    (["-dev", "none", "-devd", "none"], {"on_gpu": 0, "draft_on_gpu": 0}),
    (["--rpc", "10.0.0.2:50052"], {"untold": "--rpc puts a part of it on other machines"}),
    (
        ["-ot", "exps=MoE"],
        {"untold": "--override-tensor puts tensors on MoE, which is not known here"},
    ),
    (["-ot", "a(=CPU"], {"untold": "--override-tensor: a( cannot be read as an expression here"}),
    (
        ["-ot", "[[:digit:]]=CPU"],
        {"untold": "--override-tensor: [[:digit:]] cannot be read as an expression here"},
    ),
    (["-otd", "a(=CPU"], {"untold": ""}),  # there is no draft
    (["-nkvo"], {"cache_on_host": True}),
    (
        ["--swa-full", "-ub", "2048", "-fa", "off"],
        {"full_window": True, "batch": 2048, "flash": False},
    ),
]


@pytest.mark.parametrize(("argv", "says"), FLAGS, ids=[" ".join(argv) for argv, _ in FLAGS])
def test_each_flag_that_costs_memory_is_read(argv: list[str], says: dict[str, object]) -> None:
    """Under any of its names."""
    found = a_load(*argv).model_dump()
    assert {name: found[name] for name in says} == says


def test_variables_stand_behind_flags() -> None:
    """Its own before what it inherits, and a flag before both."""
    inherited = {"LLAMA_ARG_CTX_SIZE": "8192", "LLAMA_ARG_N_PARALLEL": "2"}
    assert a_load(**inherited).context == 8192
    assert a_load("-c", "4096", **inherited).context == 4096
    own = Words(Command((SERVER, "-m", "/m/a"), {"LLAMA_ARG_CTX_SIZE": "1024"}), inherited)
    found = load(own, "candidate", ())
    assert found is not None
    assert (found.context, found.slots) == (1024, 2)
    told = {"LLAMA_ARG_CPU_MOE": "1", "LLAMA_ARG_OVERRIDE_TENSOR": "x=CPU"}
    both = a_load("-ot", "y=CPU", **told).overrides
    assert both == (("x", "host"), (EXPERTS, "host"), ("y", "host"))
    assert a_load(LLAMA_ARG_CPU_MOE="off").overrides == ()


@pytest.mark.parametrize(
    ("argv", "shares"),
    [
        ([], [0.5, 0.5]),
        (["-ts", "3,1"], [0.75, 0.25]),
        (["-ts", "3,1,4"], [0.75, 0.25]),
        (["-ts", "3"], [0.5, 0.5]),
        (["-ts", "0,0"], [0.5, 0.5]),
        (["-ts", "a,b"], [0.5, 0.5]),
    ],
)
def test_layers_are_shared_as_the_command_line_says(argv: list[str], shares: list[float]) -> None:
    """And alike where it says nothing of it, or nonsense."""
    assert [words(*argv).share(place, 2) for place in (0, 1)] == shares


def test_without_a_model_nothing_is_asked() -> None:
    """A router loads what its clients ask for."""
    bare = words("--models-dir", "/m")
    assert load(bare, "candidate", ()) is None
    assert roles(seen("--models-dir", "/m"), bare, "candidate") is None


def test_the_roles_of_its_files_are_told() -> None:
    """Weights, draft, projector, adapters; what has to speak the model's words; the context."""
    argv = ("-m", "/m/a.gguf", "-md", "/m/d.gguf", "-mm", "/m/p.gguf", "-c", "4096", "-np", "2")
    found = roles(seen(*argv), words(*argv), "baseline")
    assert found is not None
    assert (found.arm, found.model, found.draft, found.mmproj) == (
        "baseline",
        "/m/a.gguf",
        "/m/d.gguf",
        "/m/p.gguf",
    )
    assert (found.mtp, found.own_words, found.context) == (False, True, 2048)
    heads = roles(seen(*argv), words(*argv, "--spec-type", "draft-eagle3"), "candidate")
    assert heads is not None
    assert heads.own_words is False


def test_a_context_that_overrides_the_training_is_not_held_against_it() -> None:
    """Whoever writes that knows what the file says."""
    argv = ("-m", "/m/a.gguf", "-c", "300000", "--override-kv", "qwen3.context_length=int:300000")
    found = roles(seen(*argv), words(*argv), "candidate")
    assert found is not None
    assert found.context is None


def flag_check_of(*argv: str, claimed: int = 0, **inherited: str) -> Any:
    """The check of such a command line's flags."""
    return flag_check(
        seen(*argv), words(*argv, **inherited), "candidate", loader={}, claimed=claimed
    )


def test_every_flag_is_asked_about_with_its_value() -> None:
    """Glued or apart; a switch has none."""
    check = flag_check_of("-c", "4096", "--alias=x", "--metrics")
    assert check.flags == (("-c", "4096"), ("--alias", "x"), ("--metrics", None))
    assert check.program == SERVER


def test_variables_that_nothing_overrules_are_named() -> None:
    """Those of llama-server alone, and not those that a flag sets anyway."""
    inherited = {
        "LLAMA_ARG_CTX_SIZE": "8k",
        "LLAMA_ARG_THREADS": "4",
        "LLAMA_ARG_NEW": "1",
        "PATH": "/bin",
    }
    check = flag_check_of("-t", "8", **inherited)
    assert check.environment == (
        ("LLAMA_ARG_CTX_SIZE", "8k", "--ctx-size"),
        ("LLAMA_ARG_NEW", "1", "a flag that is not known here"),
    )
    (said,) = check.misread
    assert said.startswith("LLAMA_ARG_CTX_SIZE=8k in the environment: ")


def test_slots_that_cut_the_context_are_told_apart_from_those_that_share_it() -> None:
    """Only where nobody has said what one request may use."""
    assert flag_check_of("-c", "200000", "-np", "4").context == 200_000
    assert flag_check_of("-c", "200000", "-np", "4", "-kvu").context == 0
    assert flag_check_of("-c", "200000", "-np", "1").context == 0
    assert flag_check_of("-c", "200000").context == 0


@pytest.mark.parametrize("program", ["/opt/wrapper", "llama-server", "/usr/bin/python3"])
def test_only_a_program_that_is_known_is_asked_for_help(program: str) -> None:
    """Another one might take the question for an order."""
    command = Command((program, "-c", "1"))
    server = LlamaCpp(command=("/opt/wrapper",), port=1)
    assert flag_check(server, Words(command, {}), "candidate", loader={}, claimed=0) is None


# what a log tells of memory; texts of llama.cpp b10434, with the device of a real card

LOG = """\
0.00.006.459 I print_info: arch                  = qwen35
0.00.006.461 I print_info: n_embd                = 5120
0.00.006.462 I print_info: n_layer               = 64
0.00.006.462 I print_info: n_layer_all           = 65
0.00.007.690 I load_tensors:        CUDA0 model buffer size = 14294.00 MiB
0.00.007.902 I llama_context: constructing llama_context
0.00.007.916 I llama_context: n_ctx                 = 200192
0.00.007.916 I llama_context: n_ctx_seq             = 200192
0.00.007.917 I llama_context: n_ubatch              = 512
0.00.042.398 I sched_reserve:      CUDA0 compute buffer size =   327.50 MiB
0.00.042.399 I sched_reserve:  CUDA_Host compute buffer size =   401.02 MiB
0.00.042.548 I llama_context: constructing llama_context
0.00.042.549 I llama_context: n_ctx_seq             = 200192
0.00.074.979 I sched_reserve:      CUDA0 compute buffer size =   260.00 MiB
0.00.114.671 I sched_reserve:      CUDA0 compute buffer size =   263.25 MiB
"""


def test_the_compute_buffers_of_a_start_are_learned() -> None:
    """Of every context its largest, together, on the card that has most; the host's are not."""
    assert told(LOG, run="r1") == Learned(
        architecture="qwen35",
        layers=64,
        width=5120,
        cells=200_192,
        batch=512,
        contexts=2,
        compute_mib=591,
        run="r1",
    )


def test_of_several_cards_the_fullest_is_learned() -> None:
    """Each needs its own."""
    second = LOG.replace(
        "CUDA0 compute buffer size =   263.25", "CUDA1 compute buffer size =   900"
    )
    found = told(second)
    assert found is not None
    assert found.compute_mib == 900


@pytest.mark.parametrize(
    "text",
    [
        "",
        LOG.replace("CUDA0", "CPU"),
        LOG.replace("print_info: arch", "other"),
        LOG.replace("= 64", "= many"),
        "0.00 I sched_reserve: CUDA0 compute buffer size = 1.00 MiB\n" * 3,
    ],
)
def test_a_log_without_cards_or_numbers_teaches_nothing(text: str) -> None:
    """What a CPU took says nothing of a card."""
    assert told(text) is None


@pytest.mark.parametrize(
    "line",
    [
        "warning: no usable GPU found, --gpu-layers option will be ignored",
        "warning: not compiled with GPU offload support, --gpu-layers option will be ignored",
        "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected",
    ],
)
def test_lines_that_say_that_no_gpu_is_used_are_known(line: str) -> None:
    """The first of them is quoted."""
    assert without_gpu(f"0.01 I loading\n0.02 W {line}\n") == f"0.02 W {line}"
    assert without_gpu(LOG) == ""
