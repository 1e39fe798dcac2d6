"""What a calibration that is fitted to a study records about where its runs come from, and whether a study is from there too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from calibration.studies.directory import StudyDirectory, is_study, open_directory
from calibration.studies.study import Study
from planner.calibration_files import Calibration
from planner.errors import InvalidInput

_DATA = "; data "  # before the fingerprint, at the end of a calibration's corpus


def origin(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Fields of a Calibration: title, corpus, model_family, vocab_size, tied_embeddings; nothing where there is no study."""
    folder = Path(path)
    if not is_study(folder):
        return {}
    directory = open_directory(folder)
    facts = directory.facts()
    recipe, corpus = facts["recipe"], facts["recipe"].get("corpus") or {}
    named = (
        (corpus.get("dataset"), corpus.get("subset"), corpus.get("split"))
        if corpus.get("dataset")
        else corpus.get("paths") or ()
    )
    source = ", ".join(str(part) for part in named if part)
    shapes = {
        (shape["vocab_size"], shape["tied_embeddings"])
        for shape in (run.architecture for run in directory.results())
    }
    if len(shapes) > 1:
        raise InvalidInput(
            f"the runs of the study in {path} differ in vocabulary or in tied embeddings; one law cannot hold for both."
        )
    vocab, tied = next(iter(shapes), (None, bool(recipe.get("tied_embeddings"))))
    return {
        "title": str(facts.get("title") or ""),
        "corpus": f"{source}; tokenizer {recipe.get('tokenizer')}{_DATA}{facts['data']}",
        "model_family": f"Llama-2, {'tied' if tied else 'untied'} embeddings, sequences of {recipe.get('sequence_length')}",
        "vocab_size": vocab,
        "tied_embeddings": tied,
    }


def strangeness(calibration: Calibration, study: Study, directory: StudyDirectory) -> str:
    """In which recorded facts a calibration is of something else than a study; nothing where all of them agree."""
    data, vocab = directory.facts().get("data"), study.runs[0].architecture.vocab_size
    _, recorded, fitted = calibration.corpus.rpartition(_DATA)
    differing = []
    if recorded and data and fitted != data:
        differing.append(f"another corpus ({fitted}, here {data})")
    if calibration.vocab_size and calibration.vocab_size != vocab:
        differing.append(f"another vocabulary ({calibration.vocab_size:,}, here {vocab:,})")
    return " and ".join(differing)
