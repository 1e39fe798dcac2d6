"""What the public Dolma runs say of weight-decay laws, as results.md has it; with --write also the
calibration that ships.

    OMP_NUM_THREADS=1 python studies/dolma/make.py [--write] [PART ...]

Parts are weight-decay, sizes, epochs and tuned; without any (and without --write), all of them. The runs are
read where `DATABOUND_SHARED` points to (by default `../shared`), in `data/qin2026_dolma_repeat.csv`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from calibration import fit
from calibration.fitting.bayes.hierarchical import fingerprints
from calibration.fitting.evaluate.summary import loss_interval
from calibration.fitting.runs.recipes import comparable_runs
from calibration.fitting.runs.tables import Origin, read_runs
from calibration.fitting.weight_decay_law import (
    fit_over_weight_decays,
    fit_weight_decay_law,
    largest_size_error,
    left_out_cells,
    left_out_errors,
    weight_decay_calibration,
    with_timescale,
)
from planner.calibration import Calibration, Recipe, Setting, WeightDecayLaw
from planner.inputs import InvalidInput
from planner.laws import AVERAGE, BASE_FORM, TIMESCALE, WEIGHT_DECAY_FORMS, Law

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("DATABOUND_SHARED", ROOT.parent / "shared"))
CELL = ["params", "unique_tokens", "epochs"]
RATE, STEPS = 3e-3, 400
LARGE = 300e6  # of `params_nominal`: what is left out
FEWEST = 5  # runs at a weight decay that count in the mean
RISEN = 0.02  # of ln(loss)
BOOTSTRAP = 200
RECIPE = Recipe(
    learning_rate=RATE,
    batch_sequences=512,
    sequence_length=4096,
    schedule="cosine, linear warm-up over 2% of steps",
    optimizer="AdamW, no weight decay on embeddings",
    warmup_ratio=0.02,
    betas=(0.9, 0.95),
    clip=1.0,
    decay="matrices-without-embeddings",
)


def all_rates() -> pd.DataFrame:
    runs = read_runs(SHARED / "data" / "qin2026_dolma_repeat.csv")
    return with_timescale(runs[runs["steps"] >= STEPS].reset_index(drop=True), RECIPE)


def one_rate() -> pd.DataFrame:
    runs = all_rates()
    return runs[np.isclose(runs["learning_rate"], RATE)].reset_index(drop=True)


def tuned(runs: pd.DataFrame) -> pd.DataFrame:
    """The lowest loss of every cell with two settings or more."""
    size = runs.groupby(CELL)["loss"].transform("size")
    several = runs[size > 1]
    return several.loc[several.groupby(CELL)["loss"].idxmin()].reset_index(drop=True)


def fallen(runs: pd.DataFrame) -> np.ndarray:
    """Runs whose loss falls again with the epochs after it had risen by more than 2%: no training does that,
    so one of the figures is another run's. They are named, and stay in every fit.
    """
    found = np.zeros(len(runs), dtype=bool)
    for _, one in runs.groupby(["params", "unique_tokens", "weight_decay", "learning_rate"]):
        ordered = one.sort_values("epochs")
        loss = np.log(ordered["loss"].to_numpy())
        risen = np.maximum.accumulate(np.where(loss - np.minimum.accumulate(loss) > RISEN, loss, -np.inf))
        found[ordered.index[loss < risen - RISEN]] = True
    return found


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def errors(residual: np.ndarray, named: np.ndarray) -> str:
    return (
        f"{rms(residual):.4f} ({rms(residual[~named]):.4f} without the runs named; absolute error "
        f"{np.mean(np.abs(residual)):.4f} on average, {np.median(np.abs(residual)):.4f} in the middle)"
    )


def weight_decays() -> Iterator[str]:
    """Left-out weight decays, and left-out cells, of the forms that compete."""
    runs = one_rate()
    named = fallen(runs)
    yield f"{len(runs)} runs, {named.sum()} named: {', '.join(runs['run'][named])}"
    fits = fit_over_weight_decays(runs)
    for form in fits.forms:
        if form == BASE_FORM:
            continue
        inside = fits.log_prediction(form, fits.forms[form].theta) - fits.runs.ln_loss
        every = [one for one in left_out_errors(fits, runs, form) if one.runs >= FEWEST]
        plausible = [one for one in left_out_errors(fits, runs, form, ~named) if one.runs >= FEWEST]
        means = (np.mean([one.error for one in some]) for some in (every, plausible))
        yield (
            f"{form}: in sample {errors(inside, named)}; cells left out "
            f"{errors(left_out_cells(fits, runs, form), named)}; weight decays left out "
            "{:.4f} ({:.4f} without the runs named)".format(*means)
            + f"; largest size left out {largest_size_error(fits, runs, form):.4f}"
        )


def losses(law: WeightDecayLaw, form: str, runs: pd.DataFrame) -> np.ndarray:
    parameters = {**law.laws[form].parameters, TIMESCALE: runs[TIMESCALE].to_numpy()}
    return np.asarray(Law(form, parameters).loss(*(runs[name].to_numpy(dtype=float) for name in CELL)))


def within(law: WeightDecayLaw, form: str, runs: pd.DataFrame) -> tuple[np.ndarray, float]:
    """Which runs lie within the 95% interval of their loss, and its median width in ln(loss)."""
    inside, widths = [], []
    for _, run in runs.iterrows():
        setting = law.setting(float(run["weight_decay"]), float(run[TIMESCALE]))
        found = loss_interval(setting, form, *(float(run[name]) for name in CELL))
        assert found is not None
        inside.append(found.low <= run["loss"] <= found.high)
        widths.append(np.log(found.high / found.low))
    return np.array(inside), float(np.median(widths))


def regrets(runs: pd.DataFrame, predicted: np.ndarray) -> np.ndarray:
    """ln of the loss at the weight decay that is predicted to be best, over the best, in cells with two or
    more."""
    table = runs.assign(predicted=predicted)
    cells = [one for _, one in table.groupby(CELL) if one["weight_decay"].nunique() > 1]
    return np.array([np.log(one["loss"].loc[one["predicted"].idxmin()] / one["loss"].min()) for one in cells])


def sizes() -> Iterator[str]:
    """Fitted to the smaller models, tried on the largest."""
    runs = one_rate()
    for largest in (370e6, 190e6):
        seen = runs[runs["params_nominal"] < largest].reset_index(drop=True)
        tried = runs[runs["params_nominal"] == largest].reset_index(drop=True)
        named = fallen(runs)[runs["params_nominal"] == largest]
        yield f"fitted to {len(seen)} runs below nominal {largest / 1e6:g}M, tried on {len(tried)}"
        for form in WEIGHT_DECAY_FORMS:
            try:
                _, law = fit_weight_decay_law(seen, RECIPE, forms=[form], bootstrap=BOOTSTRAP)
            except InvalidInput as error:
                yield str(error)
                continue
            predicted = losses(law, form, tried)
            inside, width = within(law, form, tried)
            regret = regrets(tried, predicted)
            off = np.log(predicted / tried["loss"].to_numpy())
            yield (
                f"{form}: {errors(off, named)}; within 95% intervals "
                f"{inside.mean():.1%} ({width:.3f} wide); regret {regret.mean():.2%} on average, "
                f"{regret.max():.2%} at most, over {len(regret)} cells"
            )
        always = regrets(tried, np.abs(np.log(tried["weight_decay"] / 0.8)).to_numpy())
        yield f"always 0.8: regret {always.mean():.2%} on average, {always.max():.2%} at most"
        picked = regrets(tried, np.abs(np.log(tried["weight_decay"] / power_rule(seen)(tried))).to_numpy())
        yield f"λ* a power of size, data, epochs: {picked.mean():.2%} on average, {picked.max():.2%} at most"


def epochs() -> Iterator[str]:
    """Fitted to fewer epochs, tried on more."""
    runs = one_rate()
    for least in (32, 64, 128):
        many = (runs["epochs"] >= least).to_numpy()
        seen, tried = (runs[one].reset_index(drop=True) for one in (~many, many))
        yield f"fitted to {len(seen)} runs of fewer than {least} epochs, tried on {len(tried)}"
        try:
            form, law = fit_weight_decay_law(
                seen, RECIPE, forms=["weight_decay_premium"], bootstrap=BOOTSTRAP
            )
        except InvalidInput as error:
            yield str(error)
            continue
        inside, width = within(law, form, tried)
        off = np.log(losses(law, form, tried) / tried["loss"].to_numpy())
        error = errors(off, fallen(runs)[many])
        yield f"{error}; within 95% intervals {inside.mean():.1%} ({width:.3f} wide)"


def power_rule(runs: pd.DataFrame) -> Callable[[pd.DataFrame], np.ndarray]:
    """λ* = c N^a U^b e^d, least squares over the best of every cell with three weight decays or more."""
    count = runs.groupby(CELL)["weight_decay"].transform("nunique")
    several = runs[count > 2]
    best = several.loc[several.groupby(CELL)["loss"].idxmin()]
    found = np.linalg.lstsq(_logs(best), np.log(best["weight_decay"].to_numpy()), rcond=None)[0]
    return lambda table: np.exp(_logs(table) @ found)


def _logs(table: pd.DataFrame) -> np.ndarray:
    return np.column_stack([np.ones(len(table)), np.log(table[CELL].to_numpy(dtype=float))])


def envelope(table: pd.DataFrame, draws: int) -> Setting:
    """Laws of tuned minima, whatever their weight decay."""
    return fit(
        table.assign(weight_decay=1.0)[["run", *CELL, "weight_decay", "loss"]], bootstrap=draws
    ).settings[0]


def tuned_minima() -> Iterator[str]:
    """Laws of the tuned envelope, of runs with so many steps or more, and as `fit` takes it from the file."""
    runs = all_rates()
    named = set(runs["run"][fallen(runs)])
    for steps in (STEPS, 1000, 2000):
        yield f"{steps} steps or more"
        yield from of_tuned(tuned(runs[runs["steps"] >= steps].reset_index(drop=True)), named)
    yield "as fit takes it"
    yield from of_tuned(comparable_runs(read_runs(SHARED / "data" / "qin2026_dolma_repeat.csv")), named)


def of_tuned(table: pd.DataFrame, named: set[str]) -> Iterator[str]:
    """Cells held out, and the largest size."""
    off = table["run"].isin(named).to_numpy()
    yield f"{len(table)} tuned cells, {off.sum()} of them named"
    fold = np.random.default_rng(0).permutation(len(table)) % 10
    residual = np.zeros(len(table))
    for k in range(10):
        law = envelope(table[fold != k], 0).law(AVERAGE)
        rows = fold == k
        residual[rows] = _residual(law, table[rows])
    yield f"cells held out: mean {_mean(residual, off)}"
    large = (table["params_nominal"] > LARGE).to_numpy()
    setting, tried = envelope(table[~large], 300), table[large]
    found = [
        loss_interval(setting, AVERAGE, *(float(one[name]) for name in CELL)) for _, one in tried.iterrows()
    ]
    inside = [one.low <= loss <= one.high for one, loss in zip(found, tried["loss"], strict=True) if one]
    residual = _residual(setting.law(AVERAGE), tried)
    yield f"370M left out ({len(tried)} cells): mean {_mean(residual, off[large])}"
    yield f"within 95% intervals {np.mean(inside):.1%}"


def _residual(law: Law, table: pd.DataFrame) -> np.ndarray:
    predicted = law.loss(*(table[name].to_numpy(dtype=float) for name in CELL))
    return np.asarray(np.log(predicted / table["loss"].to_numpy()))


def _mean(residual: np.ndarray, named: np.ndarray) -> str:
    return f"{np.mean(np.abs(residual)):.2%} ({np.mean(np.abs(residual[~named])):.2%} without the runs named)"


def calibration() -> Calibration:
    """What ships: the weight-decay law of the runs at one rate."""
    runs = one_rate()
    known = weight_decay_calibration(
        runs,
        RECIPE,
        name="dolma-olmo3",
        bootstrap=BOOTSTRAP,
        origin=Origin(
            title=f"Dolma 3, OLMo 3: {len(runs)} runs at one learning rate, eight weight decays",
            corpus="Dolma 3",
            model_family="OLMo 3, untied embeddings, 27M to 474M parameters",
            vocab_size=100_352,
        ),
        source="Qin et al. 2026, arXiv 2607.25271 (sunnytqin/OLMo-core, Apache-2.0); "
        "python studies/dolma/make.py --write",
    )
    law = known.weight_decay_law
    assert law is not None
    kept = known.default_law  # the forms that lost are in results.md
    draws = law.draws and law.draws.changed(
        laws={kept: law.draws.laws[kept]}, discrepancy={kept: law.draws.discrepancy[kept]}
    )
    law = law.changed(laws={kept: law.laws[kept]}, draws=draws)
    several = runs["weight_decay"].value_counts()
    settings = tuple(
        law.setting(float(decay), RECIPE.timescale_tokens(float(decay)))
        for decay in sorted(several[several > 1].index)
    )
    return known.changed(
        weight_decay_law=law,
        settings=settings,
        steps_needed=STEPS,
        tied_embeddings=False,
        run_fingerprints=fingerprints(all_rates()),
    )


PARTS = {"weight-decay": weight_decays, "sizes": sizes, "epochs": epochs, "tuned": tuned_minima}


def main(arguments: list[str]) -> None:
    for name in [name for name in arguments if name in PARTS] or (
        PARTS if "--write" not in arguments else ()
    ):
        print(f"\n{name}", flush=True)
        for line in PARTS[name]():
            print(line, flush=True)
    if "--write" in arguments:
        calibration().save(ROOT / "planner" / "data" / "dolma-olmo3.json")


if __name__ == "__main__":
    main(sys.argv[1:])
