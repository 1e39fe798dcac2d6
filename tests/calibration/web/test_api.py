"""The service answers what Python answers, and says what is wrong in one sentence."""

from __future__ import annotations

import inspect
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import planner
from benchmarks.service_visitor import ask
from planner import Calibration, InvalidInput
from planner.results import Comparison, Crossover, Plan, Prediction
from tests.calibration.web.conftest import Address

pytest.importorskip("fastapi")
pytestmark = pytest.mark.slow
EXAMPLES: list[tuple[str, dict[str, Any]]] = [
    ("plan", {"ud": "250M", "flops": "5e18"}),
    ("plan", {"ud": 2.5e8, "flops": 5 * 10**18, "weight_decay": 0.1, "spend": "all"}),
    ("plan", {"ud": "180M", "gpu": "H100", "gpus": 8, "hours": 20}),
    ("plan", {"ud": "1B", "target_loss": 3.0}),
    ("plan", {"ud": "65536", "flops": "3e12", "calibration": "micro"}),
    ("plan", {"ud": "250M", "flops": "5e20", "serve_tokens": "1T"}),
    ("plan", {"ud": "250M", "flops": "1e19", "calibration": "auto", "max_epochs": 4}),
    ("compare", {"ud": "500M", "flops": 1e19}),
    ("crossover", {"ud": "500M", "weight_decays": [0.1, 1.0]}),
    ("predict", {"params": "500M", "ud": "250M", "epochs": 8}),
]
MODELS = {"plan": Plan, "compare": Comparison, "crossover": Crossover, "predict": Prediction}


@pytest.mark.parametrize(("call", "given"), EXAMPLES, ids=str)
def test_answers_are_those_of_python(server: Address, call: str, given: dict[str, Any]) -> None:
    reply = ask(server, f"/v1/{call}", given)
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    expected = getattr(planner, call)(**given)
    assert MODELS[call].model_validate_json(reply.body) == expected
    assert reply.json() == json.loads(expected.model_dump_json())


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("frontier", {"ud": "250M", "flops": [1e18, "1e19", 1e20]}),
        ("frontier", {"ud": "250M", "flops": [1e14, 1e19], "max_params": "1B", "spend": "all"}),
        ("predict", {"params": ["100M", 5e8], "ud": "250M", "epochs": [1, 4]}),
    ],
    ids=str,
)
def test_lists_are_answered_with_lists(server: Address, call: str, given: dict[str, Any]) -> None:
    found, expected = ask(server, f"/v1/{call}", given).json(), getattr(planner, call)(**given).to_dict()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, list):  # a budget without a plan is null here
            value = [None if isinstance(one, float) and math.isnan(one) else one for one in value]
        assert found[name] == value, name


def test_every_argument_of_python_is_there(server: Address) -> None:
    """And nothing else."""
    described = ask(server, "/openapi.json").json()["components"]["schemas"]
    for call in ("plan", "compare", "frontier", "crossover", "predict"):
        asked = described[f"{call.title()}Request"]
        assert list(asked["properties"]) == list(inspect.signature(getattr(planner, call)).parameters)
        assert all(field["description"] for field in asked["properties"].values())


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("plan", {"ud": "250M"}),
        ("plan", {"ud": "250M", "flops": "5e18", "law": "nobody's"}),
        ("plan", {"ud": "5e18", "flops": "250M"}),
        ("plan", {"ud": "250M", "flops": "5e18", "gpu": "abacus"}),
        ("plan", {"ud": "250M", "flops": "5e18", "min_params": "1B", "max_params": "1M"}),
        ("plan", {"ud": "250M", "flops": "5e18", "finetune": True}),
        ("crossover", {"ud": "250M", "weight_decays": [0.1, 0.1]}),
        ("predict", {"params": 500, "ud": "250M"}),
    ],
    ids=str,
)
def test_bad_input_is_told_as_python_tells_it(server: Address, call: str, given: dict[str, Any]) -> None:
    reply = ask(server, f"/v1/{call}", given)
    with pytest.raises(InvalidInput) as caught:
        getattr(planner, call)(**given)
    assert reply.status == 422
    assert reply.json() == {"detail": str(caught.value), "field": caught.value.field}


@pytest.mark.parametrize(
    ("body", "said", "field"),
    [
        ({}, "ud is needed.", "ud"),
        ({"ud": True}, "ud must be a number or a text.", "ud"),
        ({"ud": "250M", "flops": [1]}, "flops must be a number or a text.", "flops"),
        ({"ud": "250M", "flopz": 1}, "there is no 'flopz' here; GET /docs has all there is.", "flopz"),
        ({"ud": "250M", "extrapolate": 1}, "extrapolate must be true or false.", "extrapolate"),
        ({"ud": "2" * 101, "flops": 1}, "ud must be a number or a text of at most 100 characters", "ud"),
        ([], "the body must be a JSON object such as", None),
        (b"{", "the body must be valid JSON.", None),
        (b"\xff\xfe{", "", None),
    ],
    ids=str,
)
def test_what_is_no_question_is_said(server: Address, body: Any, said: str, field: str | None) -> None:
    reply = ask(server, "/v1/plan", body, headers={"Content-Type": "application/json"})
    assert reply.status in (400, 422)
    assert reply.json()["detail"].startswith(said)
    assert reply.json()["field"] == field
    assert "\n" not in reply.json()["detail"]


def test_other_places_and_methods(server: Address) -> None:
    assert ask(server, "/v2/plan", {}).status == 404
    assert ask(server, "/v1/plan").status == 405
    assert "GET /docs" in ask(server, "/v1/plan").json()["detail"]
    assert ask(server, "/healthz").json() == {"status": "ok"}


def test_what_can_be_had_can_be_asked_for_its_head(server: Address) -> None:
    """Load balancers and previews of links ask so."""
    for path in ("/", "/healthz", "/static/page.css", "/v1/calibrations", "/nothing"):
        head, whole = ask(server, path, method="HEAD"), ask(server, path)
        assert (head.status, head.body) == (whole.status, b"")
        assert head.headers["content-length"] == whole.headers["content-length"]


def test_json_that_is_not_called_so_is_told_how_to_be(server: Address) -> None:
    """As `curl -d` sends it."""
    reply = ask(server, "/v1/plan", b'{"ud": "250M", "flops": "5e18"}')
    assert reply.status == 422
    assert reply.json()["detail"].endswith("sent as Content-Type: application/json.")


# -- calibrations


def test_calibrations_are_listed(server: Address) -> None:
    found = {one["name"]: one for one in ask(server, "/v1/calibrations").json()}
    assert {"fineweb-llama2", "micro"} <= found.keys()
    assert found["fineweb-llama2"]["weight_decays"] == [0.1, 1.0]
    assert found["fineweb-llama2"]["default_law"] in found["fineweb-llama2"]["laws"]


def own() -> Calibration:
    """A calibration that does not ship, with draws."""
    return Calibration.load("micro").changed(name="ours")


def test_a_calibration_travels_with_the_request_or_is_uploaded(server: Address) -> None:
    question = {"ud": "65536", "flops": "3e12"}
    expected = planner.plan(**question, calibration=own())
    sent = json.loads(own().model_dump_json(exclude_none=True))
    travelled = ask(server, "/v1/plan", {**question, "calibration": sent})
    kept = ask(server, "/v1/calibrations", json.dumps(sent).encode()).json()
    assert kept["name"] == "ours"
    named = ask(server, "/v1/plan", {**question, "calibration": kept["id"]})
    for reply in (travelled, named):
        assert Plan.model_validate_json(reply.body) == expected


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\xc3\x28\xfe\x00 anything", "is not UTF-8"),
        (b"some text\n", "is no calibration"),
        (b"run,params,loss\na,1e8,3.2\n", "is a run table"),
        (b'{"calibration": {}}', "schema_version is missing"),
    ],
)
def test_what_is_no_calibration_is_called_what_it_is(server: Address, body: bytes, said: str) -> None:
    reply = ask(server, "/v1/calibrations", body)
    assert reply.status == 422
    assert said in reply.json()["detail"]


def test_a_calibration_that_is_not_here(server: Address) -> None:
    for name in ("own-" + "0" * 32, "own-../../x", "micro.json", "./micro", "/etc/passwd", "", "file:///x"):
        reply = ask(server, "/v1/plan", {"ud": "250M", "flops": "5e18", "calibration": name})
        assert reply.status == 422
        assert reply.json()["field"] == "calibration"


# -- runs


def test_runs_are_checked_fitted_and_planned_with(server: Address, runs: pd.DataFrame) -> None:
    table = runs.to_csv(index=False).encode()
    checked = ask(server, "/v1/check", table).json()
    assert checked["runs"] == len(runs)
    assert checked["detail"] is None
    assert len(checked["preview"]) == 5
    reply = ask(server, "/v1/fit?refits=50&name=ours", table)
    assert reply.status == 200
    fitted = reply.json()
    known = Calibration.model_validate(fitted["calibration"])
    assert known.name == "ours"
    assert fitted["runs"] == len(runs)
    assert {one["law"] for one in fitted["laws"]} >= {"chinchilla"}
    question = {"ud": "250M", "flops": "5e18"}
    found = ask(server, "/v1/plan", {**question, "calibration": fitted["id"]})
    assert Plan.model_validate_json(found.body) == planner.plan(**question, calibration=known)


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_tables_of_other_kinds(server: Address, runs: pd.DataFrame, kind: str, tmp_path: Path) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        runs.to_parquet(tmp_path / "runs")
    else:
        runs.to_json(tmp_path / "runs", orient="records")
    assert ask(server, "/v1/check", (tmp_path / "runs").read_bytes()).json()["runs"] == len(runs)


EXPORT = b"""Name,State,params,unique_tokens,epochs,weight_decay,val_loss
%s
crashed,crashed,20M,50M,4,0.1,
"""


def test_a_crashed_run_is_left_out_when_asked_and_said(server: Address, runs: pd.DataFrame) -> None:
    rows = runs.head(40).itertuples()
    lines = [
        f"{one.run},finished,{one.params},{one.unique_tokens},{one.epochs},{one.weight_decay},{one.loss}"
        for one in rows
    ]
    export = EXPORT % "\n".join(lines).encode()
    refused = ask(server, "/v1/fit?refits=0", export)
    assert refused.status == 422
    assert [problem["row"] for problem in refused.json()["problems"]] == [41]
    fitted = ask(server, "/v1/fit?refits=0&drop_missing=true", export).json()
    assert fitted["runs"] == 40
    assert any("left out" in warning and "crashed" in warning for warning in fitted["warnings"])


def test_of_several_learning_rates_the_best_are_taken_and_that_is_said(
    server: Address, runs: pd.DataFrame
) -> None:
    rates = {3e-4: 1.02, 1e-3: 1.0, 3e-3: 1.03}
    swept = [
        runs.head(20).assign(
            run=[f"{run}-{rate}" for run in runs["run"].head(20)],
            learning_rate=rate,
            loss=runs["loss"] * worse,
        )
        for rate, worse in rates.items()
    ]
    table = pd.concat(swept).to_csv(index=False).encode()
    for path in ("/v1/check", "/v1/fit?refits=0"):
        found = ask(server, path, table).json()
        assert found["runs"] == 20
        (said,) = [warning for warning in found["warnings"] if "tuned envelope" in warning]
        assert "learning rate (0.0003 to 0.003)" in said
        assert "20 of 60 runs" in said


def test_a_broken_table_is_explained_row_by_row(server: Address) -> None:
    table = b"run,params,unique_tokens,epochs,weight_decay,loss\na,15M,50M,1,0.1,4.2\nb,=1+1,50M,1,0.1,-3\n"
    for path in ("/v1/check", "/v1/fit"):
        found = ask(server, path, table).json()
        assert found["detail"].endswith("2 problems in 1 row (row 1 is the first run)")
        where = [(problem["row"], problem["column"]) for problem in found["problems"]]
        assert sorted(where) == [(2, "loss"), (2, "params")]


@pytest.mark.parametrize(
    ("options", "field"),
    [("refits=-1", "refits"), ("refits=5000", "refits"), ("nope=1", "nope"), ("name=", "name")],
)
def test_options_of_a_fit_are_checked(server: Address, options: str, field: str) -> None:
    reply = ask(server, f"/v1/fit?{options}", b"run\n")
    assert reply.status == 422
    assert reply.json()["field"] == field


# -- for hosts


def test_what_is_counted_says_nothing_of_what_was_asked(server: Address) -> None:
    ask(server, "/v1/plan", {"ud": "251.25M", "flops": "5e18"})
    ask(server, "/some/secret/path?ud=77M")
    told = ask(server, "/metrics").body.decode()
    assert 'databound_requests_total{method="POST",route="/v1/plan",status="200"}' in told
    assert 'databound_request_seconds_bucket{le="0.1",route="/v1/plan"}' in told
    assert not any(word in told for word in ("251.25", "251250000", "77M", "secret"))


def test_the_documentation_is_one_page_without_scripts(server: Address) -> None:
    page = ask(server, "/docs").body.decode()
    for path in ask(server, "/openapi.json").json()["paths"]:
        assert f" {path}</h2>" in page
    assert "<script" not in page
    assert "Unique training tokens you have" in page
    assert '<meta name="viewport"' in page
    assert "`" not in page
    assert "in place of <code>flops</code>" in page
