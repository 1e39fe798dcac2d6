"""What a calibration that is fitted to a study records about where its runs come from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from calibration.sweeps.directory import is_study, open_directory
from planner.errors import InvalidInput


def origin(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Fields of a Calibration: title, corpus, model_family, vocab_size, tied_embeddings; nothing where there is no study."""
    folder = Path(path)
    if not is_study(folder):
        return {}
    directory = open_directory(folder)
    facts = directory.facts()
    recipe, corpus = facts["recipe"], facts["recipe"].get("corpus") or {}
    named = (
        (corpus.get("dataset"), corpus.get("subset"), corpus.get("split")) if corpus.get("dataset") else corpus.get("paths") or ()
    )
    source = ", ".join(str(part) for part in named if part)
    shapes = {(shape["vocab_size"], shape["tied_embeddings"]) for shape in (run.architecture for run in directory.results())}
    if len(shapes) > 1:
        raise InvalidInput(
            f"the runs of the study in {path} differ in vocabulary or in tied embeddings; one law cannot hold for both."
        )
    vocab, tied = next(iter(shapes), (None, bool(recipe.get("tied_embeddings"))))
    return {
        "title": str(facts.get("title") or ""),
        "corpus": f"{source}; tokenizer {recipe.get('tokenizer')}; data {facts['data']}",
        "model_family": f"Llama-2, {'tied' if tied else 'untied'} embeddings, sequences of {recipe.get('sequence_length')}",
        "vocab_size": vocab,
        "tied_embeddings": tied,
    }
