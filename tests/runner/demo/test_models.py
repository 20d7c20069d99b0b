"""The tiny models: their bytes, and what a real llama-server makes of them."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from runner.demo import gguf, models
from tests.servers import PINNED, Child, llama_server, needs_llama_server

Start = Callable[..., Child]
PROMPTS = ("the quick server", "Once upon a time there was a small job", "midnight rest with")


@pytest.fixture
def serve(tmp_path: Path, request: pytest.FixtureRequest) -> Start:
    """Start a real llama-server with these arguments; it ends with the test."""

    def start(*args: object) -> Child:
        words = [str(arg) for arg in args]
        argv = (str(llama_server()), "-np", "1", "-t", "2", "--metrics", *words)
        child = Child(argv, tmp_path / "server.log", PINNED)
        request.addfinalizer(lambda: child.__exit__(None, None, None))
        return child

    return start


def acceptance(server: Child, temperature: float) -> float:
    """Accepted of drafted tokens, pooled over the prompts."""
    ask = {"temperature": temperature, "seed": 1, "cache_prompt": False}
    timings = [server.complete(prompt, 256, **ask)["timings"] for prompt in PROMPTS]
    accepted = sum(each["draft_n_accepted"] for each in timings)
    drafted = sum(each["draft_n"] for each in timings)
    return float(accepted / drafted)


@pytest.mark.parametrize("kind", models.KINDS)
def test_same_arguments_give_the_same_bytes(tmp_path: Path, kind: models.Kind) -> None:
    """A model can be made again where it is needed, and it is the same model."""
    (first,) = models.write(kind, tmp_path / "a" / "model.gguf")
    (second,) = models.write(kind, tmp_path / "b" / "model.gguf")
    assert first.read_bytes() == second.read_bytes()


def test_seed_and_miss_change_the_bytes(tmp_path: Path) -> None:
    """Both dials reach the file."""
    default, other, worse = (
        models.write("mtp", tmp_path / f"{number}.gguf", **dials)[0].read_bytes()
        for number, dials in enumerate(({}, {"seed": 3}, {"miss": 0.5}))
    )
    assert default != other
    assert default != worse


def test_plain_is_the_trunk_of_mtp(tmp_path: Path) -> None:
    """The two differ in the MTP layer alone, so the comparison is fair."""
    mtp, plain = tmp_path / "mtp.gguf", tmp_path / "plain.gguf"
    models.write("mtp", mtp)
    models.write("plain", plain)
    with_layer, without = mtp.read_bytes(), plain.read_bytes()
    assert b"nextn" in with_layer
    assert b"nextn" not in without
    trunk = without[-2_000_000:]  # all but the header and the first tensors
    assert trunk in with_layer


def test_shards_are_named_and_numbered_as_llama_cpp_wants(tmp_path: Path) -> None:
    """The names count from one, the numbers within from zero; MTP's tensors are in the last."""
    paths = models.write("mtp", tmp_path / "model.gguf", shards=4)
    assert paths == gguf.shard_paths(tmp_path / "model.gguf", 4)
    assert paths[0].name == "model-00001-of-00004.gguf"
    for number, path in enumerate(paths):
        content = path.read_bytes()
        assert content.startswith(b"GGUF" + struct.pack("<I", 3))
        assert b"split.no" + struct.pack("<IH", 2, number) in content
        assert b"split.count" + struct.pack("<IH", 2, 4) in content
        assert (b"general.architecture" in content) is (number == 0)
        assert (b".nextn." in content) is (number == 3)
    assert not (tmp_path / "model.gguf").exists()


def test_tensors_lie_at_multiples_of_32_and_fill_the_file(tmp_path: Path) -> None:
    """A reader that trusts the offsets finds everything, and nothing after it."""
    path = tmp_path / "small.gguf"
    ones = np.ones((3, 5))
    gguf.write(path, {"general.architecture": "none"}, {"a": ones, "b": 2 * ones})
    content = path.read_bytes()
    assert len(content) % 32 == 0
    tail = content[-128:]
    assert struct.unpack("<15f", tail[:60]) == (1.0,) * 15
    assert struct.unpack("<15f", tail[64:124]) == (2.0,) * 15


@pytest.mark.real
@needs_llama_server
def test_mtp_drafts_with_200k_of_context(tmp_path: Path, serve: Start) -> None:
    """The demo's candidate: real drafts, accepted at the rate that the dial promises."""
    (model,) = models.write("mtp", tmp_path / "model.gguf")
    speculate = ("--spec-type", "draft-mtp", "--spec-draft-n-max", 3)
    server = serve("-m", model, *speculate, "-c", 200_000).ready()
    assert server.get("/props").json()["default_generation_settings"]["n_ctx"] >= 200_000
    assert server.get("/slots").json()[0]["speculative"] is True
    assert acceptance(server, 0.0) == pytest.approx(0.58, abs=0.02)
    assert 0.45 < acceptance(server, 0.7) < 0.56


@pytest.mark.real
@needs_llama_server
def test_miss_dials_the_acceptance(tmp_path: Path, serve: Start) -> None:
    """More wrong words, fewer accepted drafts."""
    found = []
    for miss in (0.0, 0.2, 0.5):
        (model,) = models.write("mtp", tmp_path / "model.gguf", miss=miss)
        server = serve("-m", model, "--spec-type", "draft-mtp", "--spec-draft-n-max", 3).ready()
        found.append(acceptance(server, 0.0))
        server.__exit__(None, None, None)
    assert found[0] > 0.85
    assert found[2] < 0.35
    assert found == sorted(found, reverse=True)


@pytest.mark.real
@needs_llama_server
def test_shards_draft_like_the_single_file(tmp_path: Path, serve: Start) -> None:
    """The first shard leads to the others, the MTP layer in the last one included."""
    first, *_ = models.write("mtp", tmp_path / "model.gguf", shards=4)
    server = serve("-m", first, "--spec-type", "draft-mtp", "--spec-draft-n-max", 3).ready()
    assert acceptance(server, 0.0) == pytest.approx(0.58, abs=0.02)


@pytest.mark.real
@needs_llama_server
@pytest.mark.parametrize(("kind", "speculation"), [("draft", "draft-simple"), ("mtp", "draft-mtp")])
def test_draft_file_of_its_own_drafts(
    tmp_path: Path, serve: Start, kind: models.Kind, speculation: str
) -> None:
    """Both kinds of draft file work beside a model that has no MTP layer."""
    (model,) = models.write("plain", tmp_path / "model.gguf")
    (draft,) = models.write(kind, tmp_path / "draft.gguf")
    server = serve("-m", model, "-md", draft, "--spec-type", speculation).ready()
    assert 0.4 < acceptance(server, 0.0) < 0.8


@pytest.mark.real
@needs_llama_server
def test_plain_alone_never_drafts(tmp_path: Path, serve: Start) -> None:
    """Without speculation the reply carries no draft counter at all."""
    (model,) = models.write("plain", tmp_path / "model.gguf")
    assert "draft_n" not in serve("-m", model).ready().complete()["timings"]


@pytest.mark.real
@needs_llama_server
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-m", "plain", "--spec-type", "draft-mtp"), "model doesn't contain MTP layers"),
        (("-m", "mmproj"), "CLIP cannot be used as main model, use it with --mmproj instead"),
        (("-m", "plain", "-md", "mmproj", "--spec-type", "draft-simple"), "CLIP cannot be used"),
        (("-m", "plain", "--mmproj", "draft"), "failed to load multimodal model"),
        (("-m", "plain", "--mmproj", "mmproj"), "clip.vision.attention.head_count"),
        (("-m", "gone"), "failed to open GGUF file"),
    ],
    ids=lambda value: "-".join(value).strip("-") if isinstance(value, tuple) else "",
)
def test_wrong_file_ends_the_server_with_its_reason(
    tmp_path: Path, serve: Start, arguments: tuple[str, ...], said: str
) -> None:
    """Each wrong use of a file fails as it does with a model of many gigabytes."""
    for kind in models.KINDS:
        models.write(kind, tmp_path / f"{kind}.gguf")
    files = {name: tmp_path / f"{name}.gguf" for name in (*models.KINDS, "gone")}
    server = serve(*(files.get(argument, argument) for argument in arguments))
    assert server.exit_code() == 1
    assert said in server.log()


@pytest.mark.real
@needs_llama_server
def test_missing_and_second_shard_end_the_server(tmp_path: Path, serve: Start) -> None:
    """A set of shards is whole and begins with the first, or it is nothing."""
    first, second, _, last = models.write("mtp", tmp_path / "model.gguf", shards=4)
    server = serve("-m", second)
    assert server.exit_code() == 1
    assert "illegal split file idx: 1" in server.log()
    last.unlink()
    server = serve("-m", first)
    assert server.exit_code() == 1
    assert f"{last.name}' (No such file or directory)" in server.log()
