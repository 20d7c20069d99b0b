"""How long the look before a stop takes: a full preflight, its gate, and one large header.

Prints JSON. The box is this machine, with a production that this process plays, 33 shards, two
ports and, where a C compiler is, the tests' NVML double behind the real binding.
"""

import http.server
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from preflight.check import Check
from preflight.files.access import MayRead
from preflight.files.exists import FileExists
from preflight.files.recorded import KnownFile, Record
from preflight.files.unchanged import Unchanged, Watched
from preflight.gpu.budget import GpuBudget
from preflight.gpu.driver import GpuDriver, GpuPending
from preflight.gpu.health import GpuHealthy
from preflight.gpu.identity import GpuIdentity
from preflight.host.limits import HostLimits
from preflight.host.others import OthersAtWork
from preflight.host.pressure import Quiet
from preflight.host.ram import HostRam
from preflight.host.room import Binary, DiskSpace, StateDir
from preflight.host.timing import ClockKept, StaysUp
from preflight.linux import proc
from preflight.linux.box import LinuxBox
from preflight.models.fit import Load
from preflight.models.gguf import read_header
from preflight.models.roles import Roles
from preflight.models.shards import Shards
from preflight.ports.activation import Activation
from preflight.ports.containers import Published
from preflight.ports.leftover import Leftovers
from preflight.ports.owner import ExpectedOwner, PortOwner
from preflight.production.back import way_back
from preflight.production.busy import Busy
from preflight.production.serves import ProductionServes
from preflight.production.stoptime import StopTime
from preflight.rings import Gate, gate, look

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # the tests are not installed; their GGUF writer is used here

from tests.preflight.ggufs import gguf, write_shards  # noqa: E402 - needs the path above

SHARDS = 33
VOCABULARY = 248_000
ROUNDS = 30
GIB = 1 << 30


class Server(http.server.BaseHTTPRequestHandler):
    """A production that answers its identity."""

    def do_GET(self) -> None:
        """The same to every question."""
        body = json.dumps({"n_ctx": 65536, "model_path": "/m/v3.gguf"}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Be quiet."""


def milliseconds(what: Callable[[], object]) -> float:
    """The median of many times, after one that does not count."""
    what()
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        what()
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def nvml_double(directory: Path) -> bool:
    """Put the tests' NVML library in the place of the driver's, for our children."""
    compiler = shutil.which("cc")
    if compiler is None:
        return False
    source = ROOT / "tests" / "preflight" / "linux" / "nvml_double.c"
    library = directory / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    (directory / "gpus").write_text(
        f"gpu GPU-aaaa {24 * GIB} {3 * GIB} NVIDIA GeForce RTX 3090\n"
        f"process 0 {os.getpid()} {20 * GIB} c\n"
    )
    os.environ |= {"LD_LIBRARY_PATH": str(directory), "NVML_DOUBLE": str(directory / "gpus")}
    return True


def large(path: Path) -> Path:
    """A file with the header of a model of today: a vocabulary and as many merges."""
    words = [f"word{number}" for number in range(VOCABULARY)]
    keys = {"general.architecture": "qwen35", "tokenizer.ggml.tokens": words}
    path.write_bytes(gguf(keys | {"tokenizer.ggml.merges": words}))
    return path


def checks_of(directory: Path, port: int, *, gpu: bool) -> list[Check]:
    """What a run with a split candidate and one production service asks."""
    shards = write_shards(directory, "big", SHARDS)
    first = shards[0]
    production, draft = large(directory / "v3.gguf"), large(directory / "draft.gguf")
    found, own = production.stat(), proc.ident(os.getpid())
    start = own.start if own is not None else 0
    llm = ExpectedOwner(name="llm", idents=((os.getpid(), start),))
    recipe = {
        "name": "llm",
        "supervisor": {
            "kind": "process",
            "argv": ["/bin/true"],
            "cwd": "/",
            "env": {},
            "log": f"{directory}/log",
            "pidfile": f"{directory}/pid",
        },
        "inputs": [{"path": str(production), "size": found.st_size, "inode": found.st_ino}],
        "identity": {"pid": os.getpid(), "start": start, "uid": os.geteuid()},
    }
    base = f"http://127.0.0.1:{port}"
    identity = [
        {"path": "/props", "at": ["n_ctx"], "name": "context", "want": 65536, "how": "at_least"},
        {"path": "/props", "at": ["model_path"], "name": "model_path", "how": "record"},
    ]
    checks: list[Check] = [
        StateDir(path=str(directory)),
        FileExists(path=str(first), role="weights", gguf=True),
        FileExists(path=str(draft), role="draft", gguf=True),
        FileExists(path=str(production), role="weights", gguf=True, owner="production"),
        Shards(path=str(first)),
        unchanged([*shards, draft]),
        Roles(model=str(production), draft=str(draft)),
        MayRead(service="llm", paths=(str(production),), uid=os.geteuid(), pid=os.getpid()),
        PortOwner(port=port, expect=llm),
        PortOwner(port=1),
        DiskSpace(path=str(directory), need_mib=1),
        Binary(path="/bin/true"),
        ProductionServes(name="llm", probe={"base": base, "identity": identity}),
        *way_back(recipe),
    ]
    checks += around(recipe, llm, port, first, gpu=gpu)
    if gpu:
        load = Load(model=str(production), draft=str(draft), context=4096)
        checks.append(GpuBudget(loads=(load,), asked=True, production=(llm,)))
    return checks


def around(
    recipe: dict[str, Any], llm: ExpectedOwner, port: int, first: Path, *, gpu: bool
) -> list[Check]:
    """What is asked of the machine around the job."""
    known = {**recipe, "port": port, "probe": {"base": f"http://127.0.0.1:{port}"}}
    return [
        ClockKept(),
        Published(port=1),
        Leftovers(production=(llm,), models=(str(first),)),
        OthersAtWork(),
        GpuDriver(asked=gpu),
        GpuIdentity(gpus=(0,) if gpu else (), asked=gpu),
        GpuHealthy(),
        GpuPending(),
        HostRam(copied=(str(first),), production=(llm,)),
        HostLimits(processes=(("llm", os.getpid(), False),)),
        Quiet(production=(llm,)),
        StaysUp(),
        Activation(recipe=known),
        StopTime(recipe=known),
        Busy(recipe=known),
    ]


def unchanged(files: list[Path]) -> Unchanged:
    """A look at what was recorded of so many files a moment ago."""
    with LinuxBox() as box:
        samples = box.sampled([str(path) for path in files], within=30)
    known = tuple(KnownFile.of(seen, "weights") for seen in samples)
    watched = tuple(Watched(path=str(path), role="weights") for path in files)
    return Unchanged(job="night", files=watched, record=Record(job="night", at=0, files=known))


ACCEPTED = {"port.docker": "containers of whoever uses this machine are not for a benchmark to ask"}


def measure(directory: Path, port: int) -> dict[str, tuple[float, float]]:
    """Name -> (found, wanted at most), in milliseconds."""
    gpu = nvml_double(directory)
    checks = checks_of(directory, port, gpu=gpu)
    double = "NVML double" if gpu else "no C compiler, so no GPU"
    with LinuxBox() as box:
        looked = look(checks, box, accept=ACCEPTED)
        if looked.passed is None or not isinstance(gate(looked.passed, box, time.monotonic), Gate):
            raise RuntimeError(f"it refused: {[one.message() for one in looked.refused]}")
        passed = looked.passed
        full = milliseconds(lambda: look(checks, box, accept=ACCEPTED))
        gated = milliseconds(lambda: gate(passed, box, time.monotonic))
    header = milliseconds(lambda: read_header(str(directory / "v3.gguf")))
    return {
        f"full preflight, {SHARDS} shards, 2 ports, {double}, warm (median ms)": (full, 100),
        "gate (median ms)": (gated, 100),
        f"GGUF header, {VOCABULARY} words and as many merges (median ms)": (header, 60),
    }


def main() -> None:
    """Measure, and print the numbers beside their aims."""
    with (
        tempfile.TemporaryDirectory() as name,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        numbers = measure(Path(name), server.server_port)
        server.shutdown()
    print(
        json.dumps(
            {
                name: {"found": round(found, 3), "wanted_at_most": limit, "ok": found <= limit}
                for name, (found, limit) in numbers.items()
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
