"""Speed of the fits next to the peers, in one run, on one thread, on the same starts and the same objective.

    pip install -e ".[bench]"; OMP_NUM_THREADS=1 python benchmarks/fit_speed.py

1. The base law from 324 starts: this solver, PyPI `chinchilla` 0.2.0 (BFGS, finite differences, extended
   precision), and scipy's L-BFGS-B with exact gradients, tightened and restarted until its best start is at
   the optimum (1e-9).
2. 1,000 bootstrap refits of the base law against a loop of scipy fits from finite differences.
3. The four-parameter form: 160 starts plus 1,000 bootstrap refits of both phases on 161 runs.

The scipy loops are timed on a sample of the starts or resamples and scaled up; the sample sizes are printed.
"""

from __future__ import annotations

# ruff: noqa: E402
import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("MPLBACKEND", "agg")

import importlib.util
import itertools
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import huber
from simulated import grid_table

from calibration.fitting.huber import (
    base_parameters,
    base_problem,
    base_theta,
    bootstrap,
    fit_forms,
    refit,
)
from calibration.fitting.runs.arrays import Runs
from calibration.fitting.solver import minimise
from planner.calibration import Calibration

DELTA = 1e-3
GRID = {
    "e": np.array([0.0, 0.3, 0.6, 0.9]),
    "a": np.array([3.0, 5.5, 8.0]),
    "b": np.array([5.0, 8.0, 11.0]),
    "alpha": np.array([0.2, 0.35, 0.5]),
    "beta": np.array([0.2, 0.35, 0.5]),
}  # ln E, ln A, ln B, alpha, beta: 4 x 3 x 3 x 3 x 3 = 324 starts, in the order of `chinchilla`


def best_time(work: Callable[[], Any], repeats: int = 5) -> tuple[float, Any]:
    times, result = [], None
    for _ in range(repeats):
        began = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - began)
    return min(times), result


def around_reference(points: np.ndarray, runs: Runs) -> np.ndarray:
    e, a, b, alpha, beta = points.T
    return base_theta({"E": np.exp(e), "A": np.exp(a), "alpha": alpha, "B": np.exp(b), "beta": beta}, runs)


def plain_objective(
    runs: Runs, weights: np.ndarray
) -> tuple[Callable[[np.ndarray], float], Callable[[np.ndarray], Any]]:
    """The objective as a peer would write it, in ln E, ln A, ln B, alpha, beta, and with its gradient."""
    n, d, y = runs.ln_params, runs.ln_tokens, runs.ln_loss

    def value(x: np.ndarray) -> float:
        predicted = np.exp(x[0]) + np.exp(x[1] - x[3] * n) + np.exp(x[2] - x[4] * d)
        return float((weights * huber(DELTA, np.log(predicted) - y)).sum())

    def with_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        irreducible, parameter, data = np.exp(x[0]), np.exp(x[1] - x[3] * n), np.exp(x[2] - x[4] * d)
        predicted = irreducible + parameter + data
        residual = np.log(predicted) - y
        slope = np.clip(residual, -DELTA, DELTA)
        pull = weights * slope / predicted
        gradient = [
            irreducible * pull.sum(),
            pull @ parameter,
            pull @ data,
            -(pull * parameter) @ n,
            -(pull * data) @ d,
        ]
        return float((weights * slope * (residual - 0.5 * slope)).sum()), np.array(gradient)

    return value, with_gradient


def lbfgs(with_gradient: Callable[[np.ndarray], Any], start: np.ndarray) -> float:
    """L-BFGS-B as tight as it goes, restarted until a restart gains less than 1e-10."""
    scale = 1 / max(with_gradient(start)[0], 1e-12)
    best, x = np.inf, start
    while True:
        options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-16, "gtol": 1e-14, "maxls": 50}
        found = minimize(
            lambda at: [scale * part for part in with_gradient(at)],
            x,
            jac=True,
            method="L-BFGS-B",
            options=options,
        )
        if found.fun > best * (1 - 1e-10):
            return float(min(found.fun, best) / scale)
        best, x = float(found.fun), found.x


def chinchilla_peer(runs: Runs) -> tuple[float, float] | None:
    """Seconds of PyPI `chinchilla` for all starts, and where it ends; None: it is not installed."""
    if importlib.util.find_spec("chinchilla") is None:
        return None
    from chinchilla import Chinchilla

    def loss(observed: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        return huber(DELTA, np.log(predicted) - np.log(observed))

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        grid = {key: tuple(values) for key, values in GRID.items()}
        peer = Chinchilla(project_dir=folder, param_grid=grid, loss_fn=loss, log_level=100)
        for params, tokens, observed in zip(
            np.exp(runs.ln_params), np.exp(runs.ln_tokens), runs.loss, strict=True
        ):
            peer.append(N=params, D=tokens, C=6 * params * tokens, loss=observed)
        began = time.perf_counter()
        peer.fit(parallel=False)
        seconds = time.perf_counter() - began
        predicted = peer.predict_loss(np.exp(runs.ln_params), np.exp(runs.ln_tokens))
    return seconds, float(huber(DELTA, np.log(np.asarray(predicted, dtype=float)) - runs.ln_loss).sum())


def main() -> None:
    np.seterr(over="ignore", invalid="ignore")  # the peers step out of range and come back
    rng = np.random.default_rng(0)
    law = Calibration.load().law(0.1, "additive_4p")
    table = grid_table(law, 161, 0.005, rng)
    runs = Runs.of(table)
    single = Runs.of(table[table["epochs"] == 1])
    print(
        f"table: {len(runs)} generated runs, {len(single)} of them single-epoch, noise 0.5%, delta {DELTA}\n"
    )

    free = base_problem(single)
    points = np.array(list(itertools.product(*GRID.values())))
    starts = np.clip(around_reference(points, single), free.bounds.lower, free.bounds.upper)
    ones = np.ones(len(single))
    problems = free.problems(single.ln_loss, ones, DELTA)
    ours, solved = best_time(lambda: minimise(problems, starts, free.bounds, damping=3.0))
    optimum = float(solved.value.min())
    share = float((solved.value <= optimum * (1 + 1e-9)).mean())
    print(
        f"324 starts, this solver: {ours:.4f} s, objective {optimum:.12g}, {share:.1%} of the starts at the "
        "optimum"
    )

    _, with_gradient = plain_objective(single, ones)
    sample = points[rng.choice(len(points), 24, replace=False)]
    began = time.perf_counter()
    found = np.array([lbfgs(with_gradient, point) for point in sample])
    theirs = (time.perf_counter() - began) / len(sample) * len(points)
    share = float(np.mean(found <= optimum * (1 + 1e-9)))
    print(
        f"324 starts, scipy L-BFGS-B, exact gradients, until it stands still: {theirs:.2f} s (from "
        f"{len(sample)} starts), "
        f"best within {found.min() / optimum - 1:.1e}, {share:.0%} of its starts at the optimum: "
        f"{theirs / ours:.0f}x"
    )
    began = time.perf_counter()
    once = [minimize(with_gradient, point, jac=True, method="L-BFGS-B").fun for point in sample]
    default = (time.perf_counter() - began) / len(sample) * len(points)
    print(
        f"324 starts, scipy L-BFGS-B at its default tolerances: {default:.2f} s, best within "
        f"{min(once) / optimum - 1:.1e} "
        f"(not at the optimum): {default / ours:.0f}x"
    )
    peer = chinchilla_peer(single)
    if peer is None:
        print("324 starts, PyPI chinchilla: not installed (pip install '.[bench]')")
    else:
        seconds, gap = peer[0], peer[1] / optimum - 1
        print(
            f"324 starts, PyPI chinchilla 0.2.0, one process: {seconds:.1f} s, best within {gap:.1e}: "
            f"{seconds / ours:.0f}x\n"
        )

    fits = fit_forms(single, ["chinchilla"], delta=DELTA)
    weights = rng.multinomial(len(single), np.full(len(single), 1 / len(single)), size=1000).astype(float)
    boot, again = best_time(lambda: refit(fits, weights=weights)["chinchilla"], repeats=3)
    start = base_parameters(fits.forms["chinchilla"].theta, single)
    x0 = np.array(
        [np.log(start["E"]), np.log(start["A"]), np.log(start["B"]), start["alpha"], start["beta"]],
        dtype=float,
    )
    began = time.perf_counter()
    for row in weights[:20]:
        minimize(plain_objective(single, row)[0], x0, method="BFGS", options={"gtol": 1e-9})
    loop = (time.perf_counter() - began) / 20 * 1000
    done = again.converged.mean()
    print(
        f"1,000 bootstrap refits, this solver: {boot:.4f} s, {done:.1%} converged, {boot / ours:.2f}x the "
        "324 starts"
    )
    print(
        f"1,000 bootstrap refits, loop of scipy BFGS from finite differences: {loop:.1f} s (from 20): "
        f"{loop / boot:.0f}x"
    )
    resamples = [free.problems(single.ln_loss, row, DELTA) for row in weights[:50]]
    check = np.array([minimise(resample, starts[::4], free.bounds).value.min() for resample in resamples])
    mine = free.problems(single.ln_loss, weights[:50], DELTA).values(again.theta[:50])
    print(f"refits at the best of 81 starts (1e-9), first 50: {np.mean(mine <= check * (1 + 1e-9)):.0%}\n")

    def four_parameters() -> Any:
        fitted = fit_forms(runs, ["additive_4p"], delta=DELTA)
        return fitted, bootstrap(fitted, 1000, scheme="weights")

    seconds, _ = best_time(four_parameters, repeats=3)
    print(
        f"4p: 324 + 160 starts and 1,000 bootstrap refits of both phases on {len(runs)} runs (weights): "
        f"{seconds:.2f} s"
    )
    seconds, _ = best_time(lambda: bootstrap(fit_forms(runs, ["additive_4p"], delta=DELTA), 1000), repeats=3)
    print(f"4p: the same with residuals drawn anew (the default): {seconds:.2f} s")


if __name__ == "__main__":
    main()
