"""A real llama-server with a real MTP layer: its counters, its context, its refusals."""

from pathlib import Path

import pytest

from jobs.ask import Asker
from jobs.candidate import Arm, Resolved, resolve
from jobs.claims import Context, Judged, Speculation, Throughput
from jobs.evidence import Evidence, metrics_delta, of
from jobs.load import load_job
from jobs.samples import Sample
from jobs.workload import plan, prompts, unneeded
from runner.demo import models
from runner.recovery import probe
from tests.servers import PINNED, Child, free_port, llama_server, needs_llama_server, soon

pytestmark = [pytest.mark.real, needs_llama_server]

JOB = """\
question = "Does MTP run at 200K?"
[candidate]
kind = "llamacpp"
binary = "{binary}"
model = "{model}"
context = 200000
parallel = 1
args = ["-t", "2"]
set = {{ "--spec-type" = "draft-mtp", "--spec-draft-n-max" = 3 }}
[workload]
temperatures = [0.0, 0.7]
repeats = 1
repeats_at_depth = 2
max_tokens = 64
warmups = 1
fill = [0.02]
[baseline]
drop = ["--spec-type", "--spec-draft-n-max"]
[[claim]]
kind = "speculation"
type = "draft-mtp"
acceptance_at_least = 0.3
[[claim]]
kind = "context"
tokens = 200000
filled_at_least = 0.02
[[claim]]
kind = "throughput"
at_least = 5
"""


class Measured:
    """One arm of the job above, measured on a real server."""

    def __init__(self, directory: Path, resolved: Resolved, arm: Arm) -> None:
        assert resolved.server is not None
        self.server, self.arm = resolved.server, arm
        self.samples: list[Sample] = []
        argv = resolved.command.argv
        at = argv.index("--host")  # Child adds both itself
        log = directory / f"{arm}.log"
        with Child((*argv[:at], *argv[at + 4 :]), log, env=PINNED, port=self.server.port) as child:
            self.look = soon(lambda: self._ready(child), within=30)
            before = self._observe()
            self._measure(directory)
            self.evidence = (*before, *self._observe())
            self.evidence += metrics_delta(before, self.evidence[len(before) :])
        self.evidence += self.server.log_evidence(log.read_text(), arm=arm)

    def _ready(self, child: Child) -> probe.Look | None:
        assert child.process.poll() is None, child.log()
        look = probe.serving(self.server.ready())
        return look if look.serving else None

    def _observe(self) -> tuple[Evidence, ...]:
        return self.server.observe(self.server.url(), arm=self.arm)

    def _measure(self, directory: Path) -> None:
        work = load_job(directory, "night").workload
        context = self.look.identity["context"]
        asker = Asker(self.server, self.server.url())
        for request in plan(work, prompts(work), context=context, nonce="t", arm=self.arm):
            if not unneeded(request, self.samples):
                self.samples.append(asker.send(request, deadline_s=60))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job file beside a tiny model with an MTP layer."""
    made = tmp_path_factory.mktemp("real")
    (model, *_) = models.write("mtp", made / "model.gguf")
    (made / "night.toml").write_text(JOB.format(binary=llama_server(), model=model))
    return made


def measure(directory: Path, arm: Arm) -> Measured:
    """Measure one arm."""
    resolved = resolve(load_job(directory, "night"), {}, port=free_port(), arm=arm)
    return Measured(directory, resolved, arm)


@pytest.fixture(scope="module")
def drafting(directory: Path) -> Measured:
    """The candidate, measured once for all tests."""
    return measure(directory, "candidate")


@pytest.fixture(scope="module")
def plain(directory: Path) -> Measured:
    """The baseline, measured once for all tests."""
    return measure(directory, "baseline")


def judge(claim: Speculation | Context | Throughput, *arms: Measured) -> Judged:
    """The judgement of these arms."""
    evidence = [item for arm in arms for item in arm.evidence]
    return claim.judge(evidence, [sample for arm in arms for sample in arm.samples])


def test_every_reply_is_valid_and_counted(drafting: Measured, plain: Measured) -> None:
    """In both arms, at both temperatures, short and behind a filled context."""
    assert [sample.why for sample in drafting.samples + plain.samples if not sample.valid] == []
    assert len(drafting.samples) == len(plain.samples) == 1 + 6 + 4


def test_mtp_is_proven_by_counters_that_agree(drafting: Measured) -> None:
    """Replies, page and log of a real server tell the same story."""
    found = judge(Speculation(type="draft-mtp", acceptance_at_least=0.3), drafting)
    assert (str(found.state), found.said) == ("proven", found.said)
    assert found.numbers["drafted"] == found.numbers["moved_drafted"]


def test_the_plain_arm_is_no_speculation(plain: Measured) -> None:
    """The same model without the flag: nought on the page, and the log knows why."""
    as_candidate = [
        Evidence(one.kind, one.source, one.said, one.value, one.at) for one in plain.evidence
    ]
    samples = [sample for sample in plain.samples if sample.drafted is None]
    found = Speculation(type="draft-mtp").judge(as_candidate, samples)
    assert str(found.state) == "refuted"
    assert "no implementations specified for speculative decoding" in found.said
    assert of(plain.evidence, "log.speculation.mtp_unused", "baseline")


def test_the_context_is_there_and_filled(drafting: Measured) -> None:
    """200,192 cells, and a prompt of exactly so many tokens."""
    found = judge(Context(tokens=200_000, filled_at_least=0.02), drafting)
    assert str(found.state) == "proven"
    assert found.numbers["n_ctx"] == 200_192
    assert found.numbers["filled"] == round(0.02 * 200_192)
    unfilled = judge(Context(tokens=200_000), drafting)
    assert str(unfilled.state) == "unproven"


def test_replies_behind_a_filled_context_reuse_it(drafting: Measured) -> None:
    """One cold prefill, then the cache."""
    deep = [sample for sample in drafting.samples if sample.fill]
    assert (deep[0].cache_n or 0) < 64
    assert all((sample.cache_n or 0) > 3900 for sample in deep[1:])


def test_speed_is_measured_for_each_temperature(drafting: Measured, plain: Measured) -> None:
    """From the server's own clock."""
    found = judge(Throughput(at_least=5), drafting, plain)
    assert str(found.state) == "proven"
    assert "temperature 0.7" in found.said


def test_identity_is_the_one_that_was_asked_for(drafting: Measured) -> None:
    """Model, context, slots and build, read back."""
    assert drafting.look.identity["slots"] == 1
    assert drafting.look.identity["context"] == 200_192
    assert str(drafting.look.identity["model_path"]).endswith("model.gguf")
    assert of(drafting.evidence, "slot.speculative")[0].value is True
