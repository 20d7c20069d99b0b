"""From a job and its production to what is asked of the machine."""

from dataclasses import dataclass
from typing import Any, TypeVar

from jobs.job import Job
from jobs.machine import Around, box_checks, machine_checks
from jobs.servers import LlamaCpp
from jobs.servers.base import Command
from preflight.check import Check
from preflight.files.recorded import Record
from preflight.gpu.driver import GpuDriver
from preflight.gpu.identity import GpuIdentity
from preflight.host.limits import HostLimits
from preflight.host.others import OthersAtWork
from preflight.host.pressure import Quiet
from preflight.host.ram import HostRam
from preflight.host.timing import StaysUp
from preflight.ports.activation import Activation
from preflight.ports.containers import Published
from preflight.ports.leftover import Leftovers
from preflight.production.busy import Busy
from preflight.production.stoptime import StopTime

SERVER = "/opt/llama/llama-server"
RECIPES: tuple[dict[str, Any], ...] = (
    {
        "name": "llm",
        "kind": "llamacpp",
        "port": 8080,
        "supervisor": {"kind": "process"},
        "identity": {"pid": 100, "start": 7, "argv": [SERVER, "-m", "/m/v3.gguf", "--mlock"]},
        "inputs": [{"path": "/m/v3.gguf", "role": "weights"}, {"path": SERVER, "role": "binary"}],
    },
    {"name": "embed", "kind": "openai", "port": 8082, "supervisor": {"kind": "systemd", "unit": "e.service"}},
)  # fmt: skip


C = TypeVar("C", bound=Check)


@dataclass
class Arm:
    """One arm as it will run."""

    command: Command
    server: LlamaCpp | None


def an_arm(*flags: str, port: int = 8081, **env: str) -> Arm:
    """A llama-server with these flags."""
    argv = (SERVER, "-m", "/m/job-00001-of-00002.gguf", "--port", str(port), *flags)
    return Arm(Command(argv, env), LlamaCpp(command=argv, port=port, model=argv[2]))


def a_job(**more: Any) -> Job:
    """A job with its least."""
    known = {
        "question": "?",
        "candidate": {"like": "llm"},
        "claim": [{"kind": "context", "tokens": 9}],
    }
    return Job.model_validate(known | more)


def asked(job: Job, *arms: Arm, around: Around | None = None) -> list[Check]:
    """Every check of the machine."""
    named = {f"arm{number}": arm for number, arm in enumerate(arms or (an_arm(),))}
    return machine_checks(job, named, RECIPES, around or Around())


def one(checks: list[Check], kind: type[C]) -> C:
    """The only one of its kind."""
    (found,) = [check for check in checks if isinstance(check, kind)]
    return found


def test_only_what_is_stopped_is_asked_about_its_stop() -> None:
    """The other service stays up."""
    around = Around(before_back=100.0, idle_within={"llm": 30.0}, slowest_stop={"llm": 4.0})
    checks = asked(a_job(stops=["llm"]), around=around)
    assert one(checks, Activation).service == "llm"
    assert one(checks, Busy).within_s == 30.0
    stop = one(checks, StopTime)
    assert (stop.left_s, stop.slowest_s) == (100.0, 4.0)
    assert sum(isinstance(check, Busy) for check in asked(a_job())) == 2


def test_each_port_of_a_candidate_is_asked_once() -> None:
    """Both arms of a comparison have the same."""
    assert one(asked(a_job(), an_arm(), an_arm("-ngl", "9")), Published).port == 8081
    assert (
        len([c for c in asked(a_job(), an_arm(), an_arm(port=9)) if isinstance(c, Published)]) == 2
    )


def test_gpus_are_meant_by_uuid_and_seen_through_the_environment() -> None:
    """Ours, where the arm has none of its own."""
    job = a_job(needs={"gpu": [{"uuid": "GPU-a", "free_mib": 5}, {"index": 1}]})
    inherited = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    own = an_arm(CUDA_VISIBLE_DEVICES="GPU-a")
    checks = asked(job, own, an_arm(), around=Around(inherited=inherited))
    found = one(checks, GpuIdentity)
    assert (found.gpus, found.asked) == (("GPU-a", 1), True)
    assert [seen.devices for seen in found.visible] == ["GPU-a", "0"]
    assert [seen.order for seen in found.visible] == ["PCI_BUS_ID"] * 2
    assert one(checks, GpuDriver).asked
    assert one(checks, OthersAtWork).gpus == (1,)
    assert not one(asked(a_job()), GpuDriver).asked


def test_what_is_copied_or_locked_needs_memory_of_the_host() -> None:
    """All shards of it; mapped weights need none."""
    shards = ("/m/job-00001-of-00002.gguf", "/m/job-00002-of-00002.gguf")
    assert one(asked(a_job()), HostRam).copied == ()
    copied = asked(a_job(), an_arm("--no-mmap"))
    assert (one(copied, HostRam).copied, one(copied, HostLimits).locked) == (shards, ())
    locked = asked(a_job(), an_arm("--mlock"))
    assert (one(locked, HostRam).copied, one(locked, HostLimits).locked) == (shards, shards)


def test_a_plain_production_comes_back_with_our_limits() -> None:
    """One that systemd starts has its own."""
    assert one(asked(a_job()), HostLimits).processes == (("llm", 100, True),)


def test_servers_of_our_models_are_known_by_what_they_are_started_with() -> None:
    """The job's and production's."""
    found = one(asked(a_job()), Leftovers)
    assert set(found.models) == {"/m/job-00001-of-00002.gguf", "/m/v3.gguf"}
    assert found.programs == (SERVER,)
    assert [service.name for service in found.production] == ["llm", "embed"]


def test_a_job_may_refuse_a_busy_machine() -> None:
    """By its own limit."""
    job = a_job(needs={"cpu_pressure_at_most": 20})
    assert one(asked(job), Quiet).at_most == 20
    assert one(asked(job, around=Around(takes=900.0)), StaysUp).for_s == 900.0


def test_without_a_job_the_machine_is_asked_all_the_same() -> None:
    """`runner check` alone."""
    ids = {check.id for check in box_checks(RECIPES, Around(in_slurm=True))}
    assert {"self.clock", "proc.leftover", "lock.others", "gpu.driver", "gpu.health"} <= ids
    assert {"gpu.pending", "host.load", "host.shutdown"} <= ids


def test_what_was_recorded_is_handed_to_what_asks_about_the_gpu() -> None:
    """The driver and the numbers of the cards, as they were."""
    record = Record(job="night", at=0.0)
    found = machine_checks(a_job(), {"candidate": an_arm()}, RECIPES, Around(), record=record)
    assert one(found, GpuDriver).record is record
    assert one(found, GpuIdentity).record is record
