"""Which checks a job needs, from the job, its commands and production's recipes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.candidate import Resolved, resolve
from jobs.needs import Known, checks_for
from jobs.servers.base import Command
from preflight.check import Check
from preflight.files.access import MayRead
from preflight.files.exists import FileExists
from preflight.files.recorded import Record
from preflight.files.unchanged import Unchanged
from preflight.gpu.budget import GpuBudget
from preflight.host.flags import Flags
from preflight.host.room import Binary, DiskSpace
from preflight.models.fit import Learned
from preflight.models.roles import Roles
from preflight.models.safetensors_whole import SafetensorsWhole
from preflight.models.shards import Shards
from preflight.ports.owner import PortOwner
from preflight.production.serves import ProductionServes
from tests.jobs.test_candidate import LIVE, job
from tests.jobs.test_load import DESIGN
from tests.jobs.test_mistakes import OWN, TASK

RECIPE: dict[str, Any] = {
    "name": "llm",
    "kind": "llamacpp",
    "host": "127.0.0.1",
    "port": 8080,
    "supervisor": {"kind": "systemd", "unit": "llama.service", "scope": "system"},
    "probe": {"base": "http://127.0.0.1:8080", "health": "/health"},
    "identity": {"pid": 42, "start": 4711},
    "inputs": [
        {"path": "/opt/llama-server", "role": "binary"},
        {"path": "/m/v3-00001-of-00003.gguf", "role": "weights"},
    ],
}


def checks(
    directory: Path,
    text: str = DESIGN,
    live: Command = LIVE,
    *,
    known: Known | None = None,
    recipe: dict[str, Any] | None = None,
) -> list[Check]:
    """The checks of a job beside one service."""
    loaded = job(directory, text)
    arms = {
        arm: Resolved(*_parts(resolve(loaded, {"llm": live}, port=8082, arm=arm)))
        for arm in loaded.arms
    }
    recipes = [RECIPE if recipe is None else recipe]
    return checks_for(loaded, arms, recipes, state_dir="/var/lib/runner", known=known)


def _parts(resolved: Resolved) -> tuple[Any, Any]:
    return resolved.server, resolved.command


def of(found: list[Check], kind: type[Check]) -> list[Any]:
    """The checks of one kind."""
    return [check for check in found if isinstance(check, kind)]


def test_every_file_of_the_job_is_looked_at_by_its_path(tmp_path: Path) -> None:
    """The program, the weights, and what the job needs besides; each once for both arms."""
    files = [check for check in of(checks(tmp_path), FileExists) if check.owner == "job"]
    assert [(file.role, file.path, file.gguf) for file in files] == [
        ("binary", "/opt/llama-server", False),
        ("weights", "/models/mtp/model.gguf", True),
        ("other", "/data/prompts/long.txt", False),
    ]


def test_productions_own_files_are_looked_at_too(tmp_path: Path) -> None:
    """All that its restart will open."""
    found = checks(tmp_path)
    files = [check.path for check in of(found, FileExists) if check.owner == "production"]
    assert files == ["/opt/llama-server", "/m/v3-00001-of-00003.gguf"]
    assert [(one.path, one.owner) for one in of(found, Shards)] == [
        ("/models/mtp/model.gguf", "job"),
        ("/m/v3-00001-of-00003.gguf", "production"),
    ]


def test_ports_are_productions_or_free(tmp_path: Path) -> None:
    """Production's by its unit and its process, the candidate's by nobody."""
    theirs, ours = of(checks(tmp_path), PortOwner)
    assert (theirs.port, theirs.expect.unit, theirs.expect.idents) == (
        8080, "llama.service", ((42, 4711),),
    )  # fmt: skip
    assert (ours.port, ours.expect) == (8081, "free")


def test_gpu_memory_is_asked_for_as_the_job_names_it(tmp_path: Path) -> None:
    """Estimated from the weights, or a number; what production holds comes back."""
    (budget,) = of(checks(tmp_path), GpuBudget)
    assert (budget.need_mib, budget.asked) == (None, True)
    assert budget.weights == ("/models/mtp/model.gguf",)
    assert [owner.name for owner in budget.production] == ["llm"]
    named = DESIGN.replace('free_mib = "estimate"', "free_mib = 22000, index = 1")
    (budget,) = of(checks(tmp_path, named), GpuBudget)
    assert (budget.need_mib, budget.gpu) == (22000, 1)


def test_without_a_word_about_gpus_a_box_without_one_is_fine(tmp_path: Path) -> None:
    """The check is there, and skips itself."""
    (budget,) = of(
        checks(tmp_path, DESIGN.replace('gpu   = [{ free_mib = "estimate" }]', "")), GpuBudget
    )
    assert budget.asked is False


def test_all_shards_count_for_the_memory(tmp_path: Path) -> None:
    """The first one names the others."""
    text = DESIGN.replace("/models/mtp/model.gguf", "/m/x-00001-of-00002.gguf")
    (budget,) = of(checks(tmp_path, text), GpuBudget)
    assert budget.weights == ("/m/x-00001-of-00002.gguf", "/m/x-00002-of-00002.gguf")


def test_only_a_known_program_is_asked_for_its_version(tmp_path: Path) -> None:
    """An unknown one might take the question for an order."""
    (known,) = of(checks(tmp_path), Binary)
    assert (known.path, known.version) == ("/opt/llama-server", True)
    assert known.env == {"CUDA_VISIBLE_DEVICES": "0"}
    (unknown,) = of(checks(tmp_path, TASK), Binary)
    assert (unknown.path, unknown.version) == ("/opt/llama-bench", False)
    wrapped = replace(LIVE, argv=("/usr/bin/python3", "/srv/stand_in.py", *LIVE.argv[1:]))
    found = checks(tmp_path, live=wrapped)
    assert [(one.path, one.version) for one in of(found, Binary)] == [("/usr/bin/python3", False)]
    assert "/srv/stand_in.py" in [one.path for one in of(found, FileExists)]


def test_a_prompt_file_is_a_file_of_the_job(tmp_path: Path) -> None:
    """It may be gone at midnight like any other."""
    text = OWN + '[workload]\nprompts = "/data/prompts.txt"\n'
    assert ("prompt", "/data/prompts.txt") in [
        (one.role, one.path) for one in of(checks(tmp_path, text), FileExists)
    ]


def test_every_service_is_asked_and_those_that_stop_need_their_way_back(tmp_path: Path) -> None:
    """Also with a job that stops nothing."""
    found = checks(tmp_path)
    assert [one.name for one in of(found, ProductionServes)] == ["llm"]
    assert [one.id for one in found if one.id.startswith("prod.")] == [
        "prod.identity", "prod.permission", "prod.restore",
    ]  # fmt: skip
    untouched = checks(tmp_path, DESIGN.replace('stops           = ["llm"]', "stops = []"))
    assert [one.id for one in untouched if one.id.startswith("prod.")] == ["prod.identity"]
    (budget,) = of(untouched, GpuBudget)
    assert budget.production == ()


def test_room_for_results_is_looked_at_where_they_are_written(tmp_path: Path) -> None:
    """In the state directory."""
    (space,) = of(checks(tmp_path), DiskSpace)
    assert (space.path, space.need_mib) == ("/var/lib/runner", 2000)


def test_no_check_is_asked_twice(tmp_path: Path) -> None:
    """Both arms are the same server with other flags."""
    found = [(type(check), check.model_dump_json()) for check in checks(tmp_path)]
    assert len(found) == len(set(found))


def test_a_box_without_production_has_only_the_jobs_checks(tmp_path: Path) -> None:
    """Nothing to stop, nothing to bring back."""
    loaded = job(tmp_path, OWN)
    resolved = resolve(loaded, {}, port=8082)
    found = checks_for(loaded, {"candidate": resolved}, [], state_dir="/s")
    assert not [one for one in found if one.id.startswith("prod.")]


def test_what_is_recorded_is_handed_to_every_check_that_can_tell_with_it(tmp_path: Path) -> None:
    """File by file, the set of shards, and the look at all of them together."""
    record = Record(job="200k-mtp", at=0.0)
    known = Known(record=record)
    found = checks(tmp_path, known=known)
    (unchanged,) = of(found, Unchanged)
    assert unchanged.record is record
    assert unchanged.required is False
    (program,) = of(checks(tmp_path, known=known), Binary)
    assert program.record is record
    text = DESIGN.replace("[needs]", '[needs]\nunrecorded = "refuse"', 1)
    (unchanged,) = of(checks(tmp_path, text), Unchanged)
    assert unchanged.required is True
    assert [(file.role, file.path) for file in unchanged.files][:2] == [
        ("binary", "/opt/llama-server"),
        ("weights", "/models/mtp/model.gguf"),
    ]
    own = [check for check in of(found, FileExists) if check.owner == "job"]
    assert all(check.record is record for check in own)
    production = [check for check in of(found, FileExists) if check.owner == "production"]
    assert all(check.record is None for check in production)


def test_roles_memory_and_flags_of_each_arm_are_asked(tmp_path: Path) -> None:
    """MTP of the candidate, none of the baseline; the context of the claim."""
    found = checks(tmp_path)
    roles = {check.arm: check for check in of(found, Roles)}
    assert (roles["candidate"].mtp, roles["candidate"].context) == (True, 200_000)
    assert roles["baseline"].mtp is False
    (budget,) = of(found, GpuBudget)
    assert [load.arm for load in budget.loads] == ["candidate", "baseline"]
    flags = {check.arm: check for check in of(found, Flags)}
    assert flags["candidate"].claimed == 200_000
    assert ("--spec-type", "draft-mtp") in flags["candidate"].flags


def test_a_new_build_is_asked_itself(tmp_path: Path) -> None:
    """Its file, its version and its own --help, not those of the build that serves."""
    text = DESIGN.replace('like  = "llm"', 'like  = "llm"\nbinary = "/opt/llama-server-b11434"', 1)
    assert "b11434" in text
    found = checks(tmp_path, text)
    new = "/opt/llama-server-b11434"
    files = [check for check in of(found, FileExists) if check.owner == "job"]
    assert [file.path for file in files if file.role == "binary"] == [new]
    assert [(check.path, check.version) for check in of(found, Binary)] == [(new, True)]
    assert {check.program for check in of(found, Flags)} == {new}
    (unchanged,) = of(found, Unchanged)
    assert new in {file.path for file in unchanged.files}


def test_a_script_is_asked_nothing(tmp_path: Path) -> None:
    """A start script might take no question, and start."""
    for name in ("llama-server.sh", "start-llama", "llama-serverless"):
        text = DESIGN.replace('like  = "llm"', f'like  = "llm"\nbinary = "/opt/{name}"', 1)
        found = checks(tmp_path, text)
        assert of(found, Flags) == []
        assert [check.version for check in of(found, Binary)] == [False]


def test_what_was_learned_and_what_is_inherited_is_used(tmp_path: Path) -> None:
    """Compute buffers of earlier starts, and variables of the runner's own environment."""
    learned = Learned(
        architecture="llama", layers=1, width=1, cells=1, batch=512, compute_mib=7, run="r"
    )
    known = Known(learned=(learned,), inherited={"LLAMA_ARG_N_GPU_LAYERS": "0"})
    found = checks(tmp_path, known=known)
    (budget,) = of(found, GpuBudget)
    assert budget.loads[0].learned == (learned,)
    assert budget.loads[0].on_gpu is None  # -ngl of the job comes first


def test_productions_files_are_asked_for_its_own_user(tmp_path: Path) -> None:
    """By the user and the groups of the process that runs; nobody is made up where none is known."""
    found = checks(tmp_path, recipe={**RECIPE, "identity": {"pid": 42, "start": 1, "uid": 990}})
    (access,) = of(found, MayRead)
    assert (access.uid, access.pid) == (990, 42)
    assert access.paths[1:] == tuple(f"/m/v3-0000{n}-of-00003.gguf" for n in (1, 2, 3))
    assert of(checks(tmp_path), MayRead) == []


def test_safetensors_are_looked_into(tmp_path: Path) -> None:
    """Those that a job names, an index included, and production's; an index is no size of weights."""
    index = "/m/model.safetensors.index.json"
    text = DESIGN.replace("/data/prompts/long.txt", index)
    inputs = [{"path": "/m/model.safetensors", "role": "weights"}]
    found = checks(tmp_path, text, recipe={**RECIPE, "kind": "openai", "inputs": inputs})
    assert [(one.path, one.owner) for one in of(found, SafetensorsWhole)] == [
        (index, "job"),
        ("/m/model.safetensors", "production"),
    ]
    assert of(checks(tmp_path), SafetensorsWhole) == []
    text = OWN.replace('model = "/m/model.gguf"', f'model = "{index}"')
    assert index in text
    (budget,) = of(checks(tmp_path, text), GpuBudget)
    assert index not in budget.weights


def test_a_container_client_is_known_for_one(tmp_path: Path) -> None:
    """What its command line names lies in a container, if anywhere."""
    for argv, engine in (
        (["/usr/bin/docker", "run", "image", "-m", "/m/x.gguf"], "docker"),
        (["/opt/docker-build/llama-server", "-m", "/m/x.gguf"], ""),
    ):
        identity = {"pid": 42, "start": 1, "uid": 0, "argv": argv}
        (access,) = of(checks(tmp_path, recipe={**RECIPE, "identity": identity}), MayRead)
        assert access.engine == engine


def test_room_is_looked_for_where_production_logs_too(tmp_path: Path) -> None:
    """A disk that is full there keeps it from starting; nothing of ours is written there."""
    supervisor = {"kind": "process", "log": "/var/log/llm/out.log"}
    spaces = of(checks(tmp_path, recipe={**RECIPE, "supervisor": supervisor}), DiskSpace)
    assert [(space.path, space.own) for space in spaces] == [
        ("/var/lib/runner", True),
        ("/var/log/llm", False),
    ]
