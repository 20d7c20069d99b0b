"""The main job: production down, a candidate proven, production back."""

from pathlib import Path

import pytest

from runner.demo import parts
from tests.e2e.night import Night
from tests.servers import PINNED, needs_llama_server


def test_proven_run_leaves_the_same_production(serving: Night) -> None:
    """The whole night with the stand-in: proven, exit 0, production back as the one it was."""
    before = serving.serving()
    ran = serving.run()
    assert ran.code == 0, str(ran)
    result = ran.json
    assert result["outcome"] == "proven"
    assert result["production"]["state"] == "serving"
    assert result["production"]["identity"] == "same"
    assert 0 < result["production"]["downtime_s"] < 30
    assert serving.serving() != before  # it was really down
    assert serving.candidates() == []
    assert serving.told() == ""  # proven is no reason to wake anybody


@pytest.mark.slow
def test_run_is_remembered_by_every_verb(serving: Night) -> None:
    """show, history, logs and status agree with what the run printed."""
    ran = serving.run()
    run = ran.json["run"]
    assert serving.call("show", "--json").json["run"] == run
    history = serving.call("history", "--json").json["runs"]
    assert [(each["run"], each["outcome"]) for each in history] == [(run, "proven")]
    assert "stand-in" in serving.call("logs").out
    status = serving.call("status", "--json")
    assert status.code == 0
    assert status.json["production"]["state"] == "serving"
    assert status.json["obligation"] is None


@pytest.fixture
def real(night: Night, gemma: Path, mtp: tuple[Path, ...]) -> Night:
    """Production is llama-server with a real model; the candidate has an MTP layer and 200K."""
    (server,) = parts.find().command
    night.service(command=[server], model=str(gemma), args=["--threads", "2", "--device", "none"])
    night.job(
        candidate={
            "kind": "llamacpp",
            "command": [server],
            "model": str(mtp[0]),
            "context": 200_000,
            "args": ["--spec-type", "draft-mtp", "--spec-draft-n-max", "3", "--threads", "2"],
            "env": PINNED,
        },
        workload={
            "temperatures": [0.0, 0.7],
            "max_tokens": 64,
            "repeats": 2,
            "warmups": 1,
            "fill": [0.05],
            "repeats_at_depth": 1,
        },
        claim=[
            {"kind": "speculation", "type": "draft-mtp", "acceptance_at_least": 0.4},
            {"kind": "context", "tokens": 200_000, "filled_at_least": 0.04},
            {"kind": "throughput", "temperature": 0.0, "at_least": 5.0},
        ],
    )
    night.start()
    return night


@pytest.mark.real
@needs_llama_server
def test_real_servers_prove_mtp_with_200k_of_context(real: Night) -> None:
    """Counters of a real llama-server: drafts made and accepted, 200,000 tokens there and used."""
    ran = real.run(within=120)
    assert ran.code == 0, str(ran)
    result = ran.json
    assert result["outcome"] == "proven"
    evidence = {item["kind"]: item["value"] for item in ran.claim("speculation")["evidence"]}
    assert evidence["drafted"] > evidence["accepted"] > 0
    context = ran.claim("context")
    assert context["numbers"]["n_ctx"] >= 200_000
    assert 0.04 <= context["numbers"]["filled_share"] < 0.06
    assert result["production"]["identity"] == "same"
    assert result["production"]["downtime_s"] > 0
    (service,) = result["production"]["services"]
    assert service["identity_before"]["model_path"] == service["identity_after"]["model_path"]
    assert real.candidates() == []


@pytest.mark.real
@needs_llama_server
def test_real_model_without_mtp_layers_is_refused_before_the_stop(
    real: Night, tmp_path: Path
) -> None:
    """Asked for MTP, a model without it would end its server; its tensors tell beforehand."""
    from runner.demo import models

    (plain,) = models.write("plain", tmp_path / "plain.gguf")
    before = real.serving()
    ran = real.run("night", "--set", f"candidate.model={plain}", within=120)
    assert ran.code == 3, str(ran)
    (told,) = ran.check("file.role", "fail")
    assert "plain.gguf has no nextn tensors" in told["found"]
    assert real.pid() == before
