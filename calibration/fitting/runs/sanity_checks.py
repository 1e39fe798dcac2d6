"""Slips that make a readable table mean something else: counts in millions, perplexities or bits for losses,
checkpoints for runs. What cannot be true is refused, what is doubtful is a warning; both name the cure.

What a loss should be is asked of the shipped law, and only where that is at home: models of five million
parameters and more, trained on twenty million tokens and more.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from calibration.fitting.runs.warnings import TableWarning
from planner.calibration import Calibration
from planner.inputs import InvalidInput, short

_TOY = 2000.0  # parameters below which there is no language model
_THIN, _FAT = 1e-3, 2e4  # tokens per parameter beyond which one of the two is in another unit
_USUAL = 20.0  # tokens per parameter
_UNIFORM_LOSS = 12.5  # ln of 270,000: the uniform loss of the largest vocabularies
_AT_HOME = (5e6, 2e7)  # parameters and tokens from which the shipped law is asked
_BITS, _PERPLEXITY, _PER_BYTE = 1.28, 1.9, 0.55  # times the law's loss
_STEADY = 0.15  # ln: a slip of unit moves all losses by the same factor
_CONSECUTIVE = 5  # epochs in a row in which somebody trained one size
_RISES, _FLAT = 0.03, 0.008  # shares of the loss: by how much it should rise, and does not
_CHECKPOINT = re.compile(r"(?:step|ckpt|checkpoint|iter)[-_=]?\d+", re.I)
_TOKENIZERS = re.compile(r"(?:^|[._/ ])(?:tokenizer(?:_name)?|vocab(?:_size|ulary)?)$", re.I)
_OTHER_TOTAL = re.compile(r"(?:^|[._/ ])(?:total_param(?:s|eters)|params_total)$", re.I)
_PARTLY = re.compile(r"(?=.*param)(?=.*(?:non.?emb|ex.?emb|no.?emb|without.emb))", re.I)
_UNRELATED = 0.05  # share of tables of pure noise that would look as much like a law
_FEWEST = 8


def check_units(table: pd.DataFrame, taken: Mapping[str, str]) -> None:
    """Raises where counts or losses cannot be in the units they should be in."""
    numbers = table[["params", "tokens", "loss", "epochs"]].to_numpy(dtype=float)
    params, tokens, loss, epochs = numbers[np.isfinite(numbers).all(axis=1)].T
    if not len(params):
        return
    _refuse_counts(params, tokens, taken)
    early = loss[epochs <= max(2.0, epochs.min())]
    if np.median(early) > _UNIFORM_LOSS:
        name = taken.get("loss", "loss")
        raise InvalidInput(
            f"a loss of {np.median(early):.3g} is worse than uniform, so it looks like a perplexity; laws "
            f"are about nats per token, its logarithm: ‹columns› 'loss=ln({name})'."
        )


def _refuse_counts(params: np.ndarray, tokens: np.ndarray, taken: Mapping[str, str]) -> None:
    ratio = float(np.median(tokens / params))
    small = bool(params.max() < _TOY)
    few = bool(tokens.max() < (1e6 if small else 1e5)) and (small or ratio < _THIN)
    if not small and not few and not (params.max() < 100 * _TOY and ratio > _FAT):
        return
    of_params = float(np.median(params))
    if few and small:
        factors = {"params": 1e9 if of_params < 1 else 1e6, "tokens": 1e9 if tokens.max() < 100 else 1e6}
        what = "params and tokens look"
        given = f"{of_params:.3g} parameters on {np.median(tokens):.4g} tokens"
    elif few:
        factors, what = {"tokens": _factor(_USUAL / ratio)}, "tokens look"
        given = f"{short(of_params)} parameters on {np.median(tokens):.4g} tokens"
    else:
        factors, what = {"params": _factor(ratio / _USUAL)}, "params look"
        given = f"{of_params:.3g} parameters on {short(float(np.median(tokens)))} tokens"
    words = {1e3: "thousands", 1e6: "millions", 1e9: "billions"}
    units = " and ".join(dict.fromkeys(words[factor] for factor in factors.values()))
    raise InvalidInput(
        f"{what} like {units} ({given}); laws need plain counts: ‹columns› '{_cure(factors, taken)}'."
    )


def _factor(needed: float) -> float:
    """The unit that is nearest to a factor."""
    return min((1e3, 1e6, 1e9), key=lambda factor: abs(np.log(needed / factor)))


def _cure(factors: Mapping[str, float], taken: Mapping[str, str]) -> str:
    parts = []
    for column, factor in factors.items():
        names = ("unique_tokens", "tokens") if column == "tokens" else (column,)
        name = next((n for n in names if n in taken), names[0])
        parts.append(f"{name}={taken.get(name, name)}*1e{np.log10(factor):.0f}")
    return ",".join(parts)


def sanity_checks(table: pd.DataFrame, taken: Mapping[str, str]) -> list[TableWarning]:
    """What looks wrong in a table that can be read, a sentence each."""
    looks: tuple[Callable[[pd.DataFrame, Mapping[str, str]], str], ...] = (
        _unit_of_loss,
        _checkpoints,
        _best_checkpoint,
        _tokenizers,
        _not_all_parameters,
        _copies,
        _unrelated,
    )
    found = ((look.__name__.strip("_"), look(table, taken)) for look in looks)
    return [TableWarning(code, text, warns=True) for code, text in found if text]


def _unit_of_loss(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    params, tokens = (table[name].to_numpy(dtype=float) for name in ("params", "tokens"))
    here = (params >= _AT_HOME[0]) & (tokens >= _AT_HOME[1]) & (table["epochs"].to_numpy() <= 4)
    if here.sum() < 3:
        return ""
    loss = table["loss"].to_numpy(dtype=float)[here]
    off = np.log(loss / _expected(table[here]))
    name, times = taken.get("loss", "loss"), float(np.exp(np.median(off)))
    seen = f"losses of {loss.min():.3g} to {loss.max():.3g} are {times:.2g} times what such models reach"
    if times > _PERPLEXITY:
        return f"{seen}: if they are perplexities, ‹columns› 'loss=ln({name})' makes nats of them"
    if times > _BITS and np.median(np.abs(off - np.median(off))) < _STEADY:
        return f"{seen}: if they are bits, ‹columns› 'loss={name}*0.6931' makes nats of them"
    if times < _PER_BYTE and loss.max() < 2.2:
        return (
            f"{seen}: if they are bits per byte, ‹columns› 'loss={name}*2.9' makes nats per token of them at "
            f"4.2 bytes per token (0.6931 times yours)"
        )
    return ""


def _expected(rows: pd.DataFrame) -> np.ndarray:
    """The losses of the shipped law, at the weight decay that is nearest to each run's."""
    known = Calibration.load(None)
    decays = np.array([setting.weight_decay for setting in known.settings])
    nearest = np.abs(
        np.log((rows["weight_decay"].to_numpy(dtype=float)[:, None] + 1e-3) / (decays + 1e-3))
    ).argmin(axis=1)
    points = [rows[name].to_numpy(dtype=float) for name in ("params", "unique_tokens", "epochs")]
    with np.errstate(over="ignore"):
        losses = np.array([s.law(known.default_law).loss(*points) for s in known.settings])
    return np.asarray(losses[nearest, np.arange(len(rows))])


def _cells(table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Runs that differ in their epochs only, by ascending epochs."""
    keys = ["params", "unique_tokens", "weight_decay"] + (["seed"] if "seed" in table else [])
    for _, runs in table.groupby(keys, sort=False, dropna=False):
        if runs["epochs"].nunique() > 1:
            yield runs.sort_values("epochs", kind="stable")


def _checkpoints(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    """Epochs in a row of one size: one run that was looked at after each."""
    found = []
    for runs in _cells(table):
        epochs = np.unique(runs["epochs"].to_numpy(dtype=float))
        in_a_row = len(epochs) >= _CONSECUTIVE and np.allclose(
            np.diff(epochs), epochs[1] - epochs[0], rtol=0.02
        )
        called = runs["run"].map(lambda name: bool(_CHECKPOINT.search(str(name)))).all()
        if in_a_row or (called and len(runs) > 2):
            found.append(runs)
    if sum(map(len, found)) < len(table) / 2:
        return ""
    first = found[0]["run"]
    return (
        f"{first.iloc[0]} to {first.iloc[-1]} look like checkpoints of one run ({len(first)} equal steps); a "
        f"law of final losses needs each run trained to its own end, so give the last row of each "
        f"(‹where› 'epochs == {found[0]['epochs'].iloc[-1]:g}')"
    )


def _best_checkpoint(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    """Losses that stay the same with more epochs where they should rise: the best never gets worse."""
    should, flat = [], 0
    for runs in (runs for runs in _cells(table) if runs["params"].iloc[0] >= _AT_HOME[0]):
        before = int(np.flatnonzero(runs["epochs"] < runs["epochs"].iloc[-1])[-1])
        expected, loss = _expected(runs), runs["loss"].to_numpy(dtype=float)
        rise, risen = (float(values[-1] / values[before] - 1) for values in (expected, loss))
        if rise < _RISES:
            continue
        if risen > 2 * _FLAT:
            return ""
        should.append((rise, str(runs["run"].iloc[-1])))
        flat += abs(risen) < _FLAT
    if flat < max(2, 0.6 * len(should)):
        return ""
    rise, name = max(should)
    return (
        f"the loss stays the same with more epochs where it should rise (by {rise:.0%} up to {name}): these "
        f"look like losses of the best checkpoint, which hide overfitting; give those at the end of each run"
    )


def _tokenizers(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    for column in (column for column in table.columns if _TOKENIZERS.search(str(column))):
        kinds = table[column].dropna().astype(str).value_counts()
        if len(kinds) > 1:
            each = ", ".join(f"{kind} in {runs}" for kind, runs in list(kinds.items())[:3])
            chosen = shlex.quote(f'`{column}` == "{kinds.index[0]}"')
            return (
                f"the runs differ in {column} ({each}), and nats per token of different tokenizers cannot be "
                f"compared; choose one: ‹where› {chosen}"
            )
    return ""


def _not_all_parameters(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    params = table["params"].to_numpy(dtype=float)
    used = taken.get("params", "params")
    for column in table.columns:
        name = str(column)
        if name in (used, "params") or not pd.api.types.is_numeric_dtype(table[column]):
            continue
        other = table[column].to_numpy(dtype=float)
        both = np.isfinite(other)
        if not both.any():
            continue
        if _OTHER_TOTAL.search(name) and (other > params * 1.005)[both].any():
            more = float(np.nanmax(other / params)) - 1
            return (
                f"params is taken from {used}, but {name} is up to {more:.0%} larger; laws count all "
                f"parameters, embeddings included: ‹columns› params={name}"
            )
        if _PARTLY.search(name) and (other >= params * 0.995)[both].all():
            return (
                f"{used} is not above {name}, so it looks as if embeddings were left out; laws count all "
                f"parameters"
            )
    return ""


def _copies(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    """Runs that repeat another's settings and loss to the last digit."""
    same = table.duplicated(["params", "unique_tokens", "epochs", "weight_decay", "loss"], keep=False)
    if not same.any():
        return ""
    runs = list(table["run"][same])
    return (
        f"{len(runs)} runs have the settings and the loss of another to the last digit ({runs[0]}, "
        f"{runs[1]}): copies say nothing about noise, so leave all but one out"
    )


def _unrelated(table: pd.DataFrame, taken: Mapping[str, str]) -> str:
    """Losses that size, tokens and epochs explain no better than chance would."""
    if len(table) < _FEWEST:
        return ""
    group = table["weight_decay"]
    values: Any = np.log(table[["loss", "params", "tokens", "epochs"]].astype(float))
    loss, *causes = (values - values.groupby(group).transform("mean")).to_numpy().T
    if not np.ptp(loss) > 1e-9:
        return f"all {len(table)} losses are equal, so nothing can be learnt from them"
    design = np.column_stack(causes)
    rank, free = int(np.linalg.matrix_rank(design, tol=1e-6)), len(table) - group.nunique()
    if not rank or free - rank < 4:
        return ""
    left = loss - design @ np.linalg.lstsq(design, loss, rcond=None)[0]
    unexplained = max(float(left @ left / (loss @ loss)), 1e-12)
    from scipy.stats import f

    chance = float(f.sf(((1 - unexplained) / rank) / (unexplained / (free - rank)), rank, free - rank))
    if chance < _UNRELATED:
        return ""
    return (
        f"the losses of these {len(table)} runs follow neither size nor tokens nor epochs (chance alone "
        f"would explain as much in {chance:.0%} of tables): check that each loss belongs to its row"
    )
