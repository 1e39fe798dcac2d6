"""`databound.Client` answers what Python answers, of a real server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import databound
from databound import Client, InvalidInput, ServiceError
from tests.calibration.web.conftest import Address
from tests.calibration.web.conftest import runs as runs
from tests.calibration.web.conftest import server as server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(server: Address) -> Client:
    return Client(server)


def test_the_calls_of_python(client: Client) -> None:
    assert client.plan(250e6, "5e18", weight_decay=1.0) == databound.plan(250e6, "5e18", weight_decay=1.0)
    assert client.compare("250M", 5e18) == databound.compare("250M", 5e18)
    assert client.crossover("250M") == databound.crossover("250M")
    assert client.predict("500M", "250M", 4) == databound.predict("500M", "250M", 4)
    assert client.plan(np.float64(250e6), np.float64(5e18)).params == client.plan("250M", "5e18").params


def test_many_at_once(client: Client) -> None:
    budgets = np.geomspace(1e14, 1e20, 5)
    for how in ({}, {"spend": "all", "max_params": "100M"}):
        found, expected = client.frontier("250M", budgets, **how), databound.frontier("250M", budgets, **how)
        for name, value in vars(expected).items():
            np.testing.assert_array_equal(getattr(found, name), value)
    sizes = [1e8, "500M"]
    assert client.predict(sizes, "250M").loss.tolist() == databound.predict(sizes, "250M").loss.tolist()


def test_a_file_or_a_calibration_is_sent_along(client: Client, tmp_path: Path) -> None:
    known = databound.Calibration.load("micro").changed(name="mine")
    known.save(tmp_path / "mine.json")
    expected = databound.plan(65536, 3e12, calibration=known)
    for given in (known, tmp_path / "mine.json", str(tmp_path / "mine.json")):
        assert client.plan(65536, 3e12, calibration=given) == expected


def test_runs_are_fitted(client: Client, runs: pd.DataFrame, tmp_path: Path) -> None:
    runs.to_csv(tmp_path / "runs.csv", index=False)
    fitted = client.fit(tmp_path / "runs.csv", refits=0, name="mine")
    assert fitted.name == "mine"
    assert client.plan("250M", "5e18", calibration=fitted).calibration == "mine"


def test_what_is_wrong_with_a_table_can_be_read_from_the_exception(client: Client, tmp_path: Path) -> None:
    rows = "a,15M,50M,1,0.1,4.2\nb,many,50M,1,0.1,-3\n"
    (tmp_path / "ours.csv").write_text(f"run,params,unique_tokens,epochs,weight_decay,loss\n{rows}")
    with pytest.raises(InvalidInput, match=r"^ours\.csv has 2 .*, such as: row 2, loss: '-3' must be") as of:
        client.fit(tmp_path / "ours.csv")
    found = [(one["row"], one["column"], one["value"]) for one in of.value.problems]
    assert sorted(found) == [(2, "loss", "'-3'"), (2, "params", "'many'")]
    with pytest.raises(InvalidInput, match="no column params") as of:
        client.fit(b"run,unique_tokens,epochs,weight_decay,loss\na,50M,1,0.1,4.2\n")
    assert (of.value.field, [one["column"] for one in of.value.problems]) == ("columns", ["params"])
    with pytest.raises(InvalidInput, match="no column weight_decay") as of:
        client.fit(b"run,params,unique_tokens,epochs,loss\na,15M,50M,1,4.2\n")
    assert of.value.field == "weight_decay"


def test_what_is_wrong_is_said_as_in_python(client: Client) -> None:
    for given in ({"ud": "250M"}, {"ud": "250M", "flops": "x"}, {"ud": -1, "flops": 1}):
        with pytest.raises(InvalidInput) as here:
            databound.plan(**given)
        with pytest.raises(InvalidInput) as there:
            client.plan(**given)
        assert str(there.value) == str(here.value)
        assert there.value.field == here.value.field
    with pytest.raises(TypeError, match="unexpected keyword argument 'flopz'"):
        client.plan("250M", flopz=1)
    with pytest.raises(InvalidInput, match="must be one of fineweb-llama2"):
        client.plan("250M", "5e18", calibration="nobody's")
    with pytest.raises(InvalidInput, match="is neither a file nor a shipped name"):
        client.plan("250M", "5e18", calibration="not-here.json")


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(ServiceError, match="does not answer"):
        Client("http://127.0.0.1:1").plan("250M", "5e18")
    with pytest.raises(InvalidInput, match="must be an address such as"):
        Client("localhost")


def test_calibrations_are_listed(client: Client) -> None:
    assert "fineweb-llama2" in [one["name"] for one in client.calibrations()]
