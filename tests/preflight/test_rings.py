"""P6: production is stopped only on a sealed pass, and a gate that looked again."""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import pytest

from preflight.box import Box
from preflight.check import Check
from preflight.files.exists import FileExists
from preflight.ports.owner import PortOwner
from preflight.production.control import MayControl
from preflight.rings import FRESH_S, Gate, Looked, Pass, gate, look
from preflight.verdict import BlastRadius, State, Verdict
from tests.fakes import FakeBox, a_file, a_process, listens, missing

MODEL = "/m/model.gguf"
DRAFT = "/m/draft.gguf"


class Broken(Check):
    """A check with a bug."""

    id: ClassVar[str] = "self.broken"
    radius: ClassVar[BlastRadius] = BlastRadius.SELF

    kind: Literal["broken"] = "broken"

    @property
    def subject(self) -> str:
        """Nothing."""
        return "nothing"

    def look(self, box: Box) -> Verdict:
        """Fail by a bug."""
        raise KeyError(str(box))


def files(*paths: str, **more: Any) -> list[Check]:
    """One check a file."""
    return [FileExists(path=path, role="weights", gguf=True, **more) for path in paths]


def passed(checks: list[Check], box: FakeBox) -> Pass:
    """The pass of a look that has to consent."""
    found = look(checks, box).passed
    assert found is not None
    return found


def states(looked: Looked) -> list[str]:
    """The answers' states, in order."""
    return [verdict.state.value for verdict in looked.verdicts]


def test_the_ring_that_refuses_is_finished_and_outer_rings_are_skipped() -> None:
    """One alert names everything that is wrong in that ring, and nothing outer is touched."""
    checks = [PortOwner(port=8080), *files(MODEL, DRAFT, "/m/third.gguf")]
    looked = look(checks, FakeBox().has(a_file(DRAFT)))
    assert [verdict.id for verdict in looked.verdicts] == ["file.exists"] * 3 + ["port.owner"]
    assert states(looked) == ["fail", "pass", "fail", "skipped"]
    assert [verdict.subject for verdict in looked.refused] == [
        f"model {MODEL}",
        "model /m/third.gguf",
    ]
    assert "files ring" in looked.verdicts[-1].found
    assert looked.passed is None


def test_rings_are_asked_by_radius_whatever_the_order_of_the_list() -> None:
    """Files before ports before the GPU: what is cheap to get wrong is asked first."""
    recipe = {"name": "llm", "supervisor": {"kind": "process"}, "identity": {"uid": 1000}}
    checks = [MayControl(recipe=recipe), PortOwner(port=8080), *files(MODEL)]
    looked = look(checks, FakeBox().has(a_file(MODEL)))
    assert [verdict.radius for verdict in looked.verdicts] == [
        BlastRadius.FILES,
        BlastRadius.PORTS,
        BlastRadius.PRODUCTION,
    ]
    assert looked.passed is not None


def test_each_answer_is_told_as_it_comes() -> None:
    """Live progress shows every verdict once, the skipped ones too."""
    told: list[str] = []
    looked = look(
        [PortOwner(port=8080), *files(MODEL)],
        FakeBox(),
        on_verdict=lambda verdict: told.append(verdict.state.value),
    )
    assert told == states(looked) == ["fail", "skipped"]
    assert looked.verdicts[0].took_ms > 0


def test_a_bug_in_a_check_is_an_unknown_and_no_traceback() -> None:
    """Our own fault blocks a stop; it never ends the look."""
    looked = look([Broken(), *files(MODEL)], FakeBox().has(a_file(MODEL)))
    assert states(looked) == ["unknown", "skipped"]
    assert "KeyError" in looked.verdicts[0].found
    assert looked.passed is None


def test_an_unknown_blocks_until_it_is_accepted_by_its_id() -> None:
    """P8: a person may accept one check's unknown, with a reason that stays visible."""
    box = FakeBox(sockets_fault="EACCES")
    checks: list[Check] = [PortOwner(port=8080)]
    assert look(checks, box).passed is None
    assert look(checks, box, accept={"gpu.budget": "no"}).passed is None
    looked = look(checks, box, accept={"port.owner": "hardened kernel, looked by hand"})
    assert looked.passed is not None
    assert looked.verdicts[0].state is State.UNKNOWN
    assert looked.verdicts[0].accepted == "hardened kernel, looked by hand"


def test_an_unknown_about_the_way_back_is_never_accepted() -> None:
    """P8: no reason is good enough for not knowing whether production can come back."""
    recipe = {"name": "llm", "supervisor": {"kind": "process"}}
    checks = [
        MayControl(recipe=recipe),
        FileExists(path=MODEL, owner="production"),
    ]
    hidden = missing(MODEL, fault="EACCES")
    for check in checks:
        accept = {"prod.permission": "trust me", "file.exists": "trust me"}
        looked = look([check], FakeBox().has(hidden), accept=accept)
        assert looked.verdicts[0].state is State.UNKNOWN
        assert looked.passed is None
        assert "never accepted" in looked.verdicts[0].evidence[-1]


def test_nobody_else_can_make_a_pass_or_a_gate() -> None:
    """The permission to stop comes from looking, and from nowhere else."""
    with pytest.raises(TypeError):
        Pass((), {}, seal=object())
    with pytest.raises(TypeError):
        Gate(passed([], FakeBox()), 0.0, seal=object())


def test_the_gate_opens_for_ten_seconds() -> None:
    """A stop on an older look is not allowed, and neither is one on a look from the future."""
    opened = gate(
        passed(files(MODEL), FakeBox().has(a_file(MODEL))),
        FakeBox().has(a_file(MODEL)),
        lambda: 100.0,
    )
    assert isinstance(opened, Gate)
    assert opened.ended_at == 100.0
    assert opened.fresh(100.0 + FRESH_S - 0.01)
    assert not opened.fresh(100.0 + FRESH_S)
    assert not opened.fresh(99.0)


@pytest.mark.parametrize("change", [{"size": 5}, {"inode": 8}, {"mtime_ns": 1}])
def test_the_gate_refuses_a_file_that_changed_since_its_check(change: dict[str, int]) -> None:
    """Replaced, cut or rewritten: it may be fine, but it is not what was checked."""
    box = FakeBox().has(a_file(MODEL))
    seal = passed(files(MODEL), box)
    refused = gate(seal, box.has(a_file(MODEL, **change)), lambda: 0.0)
    assert isinstance(refused, tuple)
    assert refused[0].id == "gate.recheck"
    assert refused[0].subject == f"model {MODEL}"


def test_the_gate_refuses_what_has_gone_since_its_check() -> None:
    """The cheap part of the check itself says what is wrong now."""
    box = FakeBox().has(a_file(MODEL))
    seal = passed(files(MODEL), box)
    refused = gate(seal, FakeBox(), lambda: 0.0)
    assert isinstance(refused, tuple)
    assert [verdict.id for verdict in refused] == ["file.exists"]


def test_the_gate_refuses_a_port_that_was_taken_meanwhile() -> None:
    """Somebody started a server between the check and the stop."""
    box = FakeBox()
    seal = passed([PortOwner(port=8081)], box)
    box.rows.append(listens(8081, a_process(4711, "python3", "proxy.py")))
    refused = gate(seal, box, lambda: 0.0)
    assert isinstance(refused, tuple)
    assert "4711" in refused[0].found


def test_the_gate_hurries_every_check() -> None:
    """Two seconds each, so that the whole look stays fresh."""
    waited: list[float] = []

    class Slow(FakeBox):
        def files(self, paths: Any, *, within: float) -> Any:
            waited.append(within)
            return super().files(paths, within=within)

    box = Slow().has(a_file(MODEL))
    seal = passed(files(MODEL), box)
    assert isinstance(gate(seal, box, lambda: 0.0), Gate)
    assert waited[0] > 2 >= waited[-1]


def test_an_accepted_unknown_opens_the_gate_too() -> None:
    """What a person accepted a moment ago is still accepted."""
    box = FakeBox(sockets_fault="EACCES")
    looked = look([PortOwner(port=8080)], box, accept={"port.owner": "looked by hand"})
    assert looked.passed is not None
    assert isinstance(gate(looked.passed, box, lambda: 0.0), Gate)


def test_every_kind_is_in_the_table_under_its_own_name() -> None:
    """A check that the table does not know could not be read back from its JSON."""
    from pydantic import TypeAdapter

    from preflight.rings import AnyCheck

    adapter: TypeAdapter[Check] = TypeAdapter(AnyCheck)
    for check in (PortOwner(port=1), FileExists(path=MODEL)):
        assert adapter.validate_json(check.model_dump_json()) == check
    assert replace(look([PortOwner(port=1)], FakeBox()).verdicts[0], took_ms=0).id == "port.owner"
