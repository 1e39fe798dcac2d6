"""Where runs come from: recorded by a fit, kept by its file, and absent where nothing is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.simulated import grid_table
from calibration import Origin, read_runs
from calibration import fit as fit_anything
from calibration.fitting.two_phase import Method
from calibration.studies.fit import fit_laws
from planner.calibration import Calibration

QUICK = Method(laws=("additive_1p",), bootstrap=0, prior="none")
KNOWN = Origin("Ours", "text.txt; tokenizer bytes", "Llama-2", 257, False, "0123")


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    law = Calibration.load("fineweb-llama2").law(0.1, "additive_1p")
    return read_runs(grid_table(law, 60, 0.004, np.random.default_rng(0)))


def test_a_fit_records_the_origin_of_its_table(runs: pd.DataFrame, tmp_path: Path) -> None:
    fit_laws(runs, KNOWN, QUICK).save(tmp_path / "law.json")
    found = Calibration.load(tmp_path / "law.json")
    assert (found.title, found.corpus, found.model_family) == ("Ours", "text.txt; tokenizer bytes", "Llama-2")
    assert (found.vocab_size, found.data_fingerprint) == (257, "0123")
    assert json.loads(found.model_dump_json())["tied_embeddings"] is False


def test_what_is_not_known_is_not_in_the_file(runs: pd.DataFrame) -> None:
    written = json.loads(fit_laws(runs, Origin(), QUICK).model_dump_json())
    assert not {"data_fingerprint", "tied_embeddings"} & set(written)


def test_a_table_s_origin_can_be_said_by_hand(runs: pd.DataFrame) -> None:
    found = fit_anything(runs, laws=["additive_1p"], bootstrap=0, prior="none", title="Ours", vocab_size=257)
    assert (found.title, found.vocab_size, found.corpus) == ("Ours", 257, "")
    assert found.settings == fit_laws(runs, Origin(), QUICK).settings
