"""How long a night will be: parts at learned speeds, and the names of what nobody has measured."""

from typing import Any

import pytest

from jobs.job import Job
from preflight.verdict import State
from runner.lasting import Lasts, lasts, time_check
from tests.fakes import FakeBox

Json = dict[str, Any]


def a_job(**workload: Any) -> Job:
    """A job that measures two temperatures, five times, over four kinds of prompts."""
    return Job.model_validate(
        {
            "question": "How long?",
            "candidate": {"kind": "llamacpp", "binary": "/x/llama-server", "model": "/x/m.gguf"},
            "workload": {
                "temperatures": [0.0, 0.7],
                "repeats": 5,
                "warmups": 0,
                "max_tokens": 100,
                "prompts": "builtin:code",
                **workload,
            },
            "claim": [{"kind": "throughput", "temperature": 0.0, "at_least": 1}],
        }
    )


def group(temperature: float, decoding: float | None, **more: Any) -> Json:
    """What one run said of one group of replies."""
    said = {"temperature": temperature, "fill": None, "n": 5, "prompt_tps": None}
    return {**said, "decoding_tps": decoding, **more}


def a_run(*groups: Json, ready_s: float | None = 60.0, arm: str = "candidate") -> Json:
    """The result of an earlier run."""
    return {"measurements": {arm: {"ready_s": ready_s, "replies": list(groups)}}}


def parts(found: Lasts) -> Json:
    """The parts by name."""
    return dict(found.parts)


def test_before_a_first_run_only_the_way_back_is_known() -> None:
    """What was never measured is named, and no number is made up for it."""
    found = lasts(a_job(), {"candidate": 4096}, [], way_back=900)
    assert parts(found) == {"the way back": 900}
    assert found.untold == ("how long the candidate loads", "how fast the candidate is")
    said = time_check(found, 5400, stops=True)
    assert said.state is State.PASS
    assert said.found == (
        "needs at least 15m of 1h30m (the way back 15m); a first run tells how long the candidate "
        "loads and how fast the candidate is"
    )


def test_loads_and_speeds_of_earlier_runs_make_the_sum() -> None:
    """Five replies of 100 tokens for each temperature, each at its own speed."""
    run = a_run(group(0.0, 50.0), group(0.7, 25.0))
    found = lasts(a_job(), {"candidate": 4096}, [run], way_back=120)
    assert parts(found) == {"candidate loads": 60, "candidate measured": 30, "the way back": 120}
    assert found.untold == ()
    assert time_check(found, 2400, stops=True).found == (
        "needs about 3m30s of 40m (candidate loads 1m + candidate measured 30s + the way back 2m)"
    )


def test_the_load_is_the_median_of_what_was_seen() -> None:
    """One slow night does not count for all."""
    runs = [a_run(group(0.0, 50.0), group(0.7, 50.0), ready_s=time) for time in (50, 60, 700)]
    assert parts(lasts(a_job(), {"candidate": 1}, runs, way_back=0))["candidate loads"] == 60


def test_a_filled_context_is_read_once_and_decoded_behind() -> None:
    """200,000 tokens at 1,000 a second, then three replies for each temperature at the speed there."""
    run = a_run(
        group(0.0, 50.0),
        group(0.7, 50.0),
        group(0.0, 10.0, fill=0.5, prompt_tps=1000.0),
        group(0.7, 10.0, fill=0.5),
    )
    found = lasts(a_job(fill=[0.5]), {"candidate": 400_000}, [run], way_back=0)
    assert parts(found)["candidate measured"] == 20 + 200 + 60


@pytest.mark.parametrize("fill", [0.25, 0.9])
def test_a_depth_that_was_never_measured_is_not_known(fill: float) -> None:
    """Speed falls with depth, so another depth's is no answer."""
    run = a_run(group(0.0, 50.0), group(0.7, 50.0), group(0.0, 9.0, fill=0.5, prompt_tps=1e3))
    found = lasts(a_job(fill=[fill]), {"candidate": 400_000}, [run], way_back=0)
    assert found.untold == ("how fast the candidate is",)


def test_another_arm_lends_its_speed_and_not_its_load() -> None:
    """A baseline that was never run is about as fast, and may load in another time."""
    run = a_run(group(0.0, 50.0), group(0.7, 50.0))
    arms = {"candidate": 4096, "baseline": 4096}
    found = lasts(a_job(), arms, [run], way_back=0)
    assert parts(found)["baseline measured"] == 20
    assert found.untold == ("how long the baseline loads",)


def test_warm_ups_count_too() -> None:
    """At the first temperature."""
    run = a_run(group(0.0, 50.0), group(0.7, 50.0))
    found = lasts(a_job(warmups=3), {"candidate": 1}, [run], way_back=0)
    assert parts(found)["candidate measured"] == 26


def test_prompts_of_a_file_are_counted_as_they_were() -> None:
    """Their number stands in the file, which is not read for that."""
    run = a_run(group(0.0, 50.0, n=20), group(0.7, 50.0, n=20))
    found = lasts(a_job(prompts="/x/p.txt"), {"candidate": 1}, [run], way_back=0)
    assert parts(found)["candidate measured"] == 4 * 20
    first = lasts(a_job(prompts="/x/p.txt"), {"candidate": 1}, [], way_back=0)
    assert "how fast the candidate is" in first.untold


def test_a_task_lasts_as_long_as_it_did() -> None:
    """It tells no speed, so whole nights count; those that were cut do not."""
    job = Job.model_validate(
        {"question": "?", "candidate": {"kind": "task", "command": ["/bin/true"]}}
    )
    nights = [
        {"outcome": outcome, "production": {"downtime_s": down}}
        for outcome, down in (("proven", 600), ("broken", 5), ("refuted", 700))
    ]
    assert lasts(job, {"candidate": None}, nights, way_back=60).seconds == 650
    assert lasts(job, {"candidate": None}, [], way_back=60).untold == ("how long the task works",)


@pytest.mark.parametrize(
    ("budget", "state"),
    [(100, State.FAIL), (210, State.FAIL), (220, State.WARN), (300, State.PASS)],
)
def test_what_cannot_fit_is_refused_and_what_hardly_fits_is_told(
    budget: float, state: State
) -> None:
    """210 seconds are needed; a run that is cut proves nothing."""
    run = a_run(group(0.0, 50.0), group(0.7, 25.0))
    found = lasts(a_job(), {"candidate": 4096}, [run], way_back=120)
    verdict = time_check(found, budget, stops=True).look(FakeBox())
    assert (verdict.id, verdict.state) == ("self.time", state)
    assert bool(verdict.remedy) is (state is not State.PASS)


def test_where_nothing_is_stopped_no_night_is_too_short() -> None:
    """There is no downtime to keep to."""
    found = Lasts((("candidate loads", 100.0),))
    assert time_check(found, 10, stops=False).state is State.PASS


@pytest.mark.parametrize(
    "history",
    [
        [{}],
        [{"measurements": None}],
        [{"measurements": {"candidate": None}}],
        [{"measurements": {"candidate": {"ready_s": None, "replies": [{}]}}}],
        [a_run(group(0.0, 0.0), group(0.7, None))],
    ],
)
def test_results_without_numbers_teach_nothing(history: list[Json]) -> None:
    """Of runs that broke, or that an older runner wrote."""
    found = lasts(a_job(), {"candidate": 4096}, history, way_back=1)
    assert "how fast the candidate is" in found.untold
