"""What a study is: one recipe and a set of cells, read from a TOML file.

    title = "A law for our corpus"

    [recipe]                          # any setting of a run that all cells share; see `trainer.config`
    preset = "micro"
    corpus = "texts/*.jsonl"

    [[grid]]                          # every combination is a run; cells that several grids share count once
    params = ["60k", "200k"]          # or shapes = ["25M", "125M"]
    unique_tokens = ["64k", "128k"]
    epochs = [1, 4, 16]
    weight_decays = [0.1, 1.0]
    seeds = [0, 1, 2]
    max_flops = 1e12                  # cells more than 0.5% above are left out

    trunks = true                     # with schedule = "wsd": runs that differ in epochs share the longest

    [validation]                      # budgets that the laws are tried at, fixed before anything is fitted
    pairs = [{ ud = "64k", flops = 2e12 }]

Instead of, or next to, grids, `cells = "next.csv"` names a table such as `planner calibrate design -o
next.csv` writes. Studies that ship with the package are known by name: paper, micro, smoke.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from calibration.studies.engine import Needs
from planner.hardware import Architecture, preset
from planner.inputs import InvalidInput, compute, count, number, whole
from planner.laws import STANDARD, check_form
from planner.solve import FLOPS_PER_PARAM_TOKEN
from trainer.config import EXECUTION, RunConfig, anchored, changed

SHIPPED = Path(__file__).parent / "shipped"
# Sizes and tokens are rounded to what can be trained, which must not cost a cell that is meant at the limit.
_SLACK = 1.005
_PER_CELL = {"params", "shape", "unique_tokens", "epochs", "weight_decay", "seed"}
_TOP = ("title", "recipe", "grid", "cells", "trunks", "validation", "needs", "distill")
_NEEDS = ("gpus", "memory", "threads", "accelerator")
_BYTES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30, "T": 10**12}


@dataclass(frozen=True)
class StudyRun:
    """One cell of a study: its name, which is also its directory's, and the run it stands for."""

    name: str
    config: RunConfig
    architecture: Architecture
    trunk: str = ""  # the run whose checkpoint it begins from

    @property
    def params(self) -> int:
        return self.architecture.params

    @property
    def tokens(self) -> int:
        return self.config.length()[1] * self.config.sequence_length

    @property
    def steps(self) -> int:
        return self.config.length()[2]

    @property
    def flops(self) -> float:
        return FLOPS_PER_PARAM_TOKEN * self.params * self.tokens


@dataclass(frozen=True)
class Validation:
    """Where the laws are tried, and how often."""

    pairs: tuple[tuple[float, float], ...] = ()  # (unique tokens, FLOPs)
    laws: tuple[str, ...] = field(default_factory=lambda: tuple(STANDARD))
    weight_decays: tuple[float, ...] | None = None  # of prescriptions; None: the weakest of the calibration
    seeds: int | None = None  # None: five where that takes no more compute than the grid, else three
    max_params: float | None = None  # that is trained; None: ten times the largest size fitted
    crossover_uds: tuple[float, ...] = ()  # where the crossover between weight decays is looked for
    crossover_factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the predicted compute


@dataclass(frozen=True)
class Study:
    """A recipe, the runs that a law is fitted to, and the budgets that it is tried at."""

    name: str
    title: str
    recipe: Mapping[str, Any]
    grids: tuple[Mapping[str, Any], ...]
    cells: tuple[Mapping[str, Any], ...]
    validation: Validation
    needs: Needs = field(default_factory=Needs)
    distill: Mapping[str, float] | None = None  # one model that learns from each ensemble; None: none does
    trunks: bool = False  # runs that differ in epochs alone decay from checkpoints of the longest

    @cached_property
    def runs(self) -> tuple[StudyRun, ...]:
        """Every run once, in the order in which the file names them."""
        found: dict[str, StudyRun] = {}
        for place, values, limit in self._combinations():
            try:
                run = self.run(**values)
            except InvalidInput as error:
                raise InvalidInput(f"study {self.name}, {place}: {error}") from None
            if run.flops <= limit * _SLACK:
                found.setdefault(run.name, run)
        if not found:
            raise InvalidInput(
                f"study {self.name} has no runs; a [[grid]] with sizes, unique_tokens and epochs would do."
            )
        return tuple(_with_trunks(found.values()) if self.trunks else found.values())

    def run(self, **cell: Any) -> StudyRun:
        """The run of a cell: `params` or `shape`, `unique_tokens`, `epochs`, `weight_decay`, `seed`."""
        config = RunConfig(**{**self.recipe, **cell})
        # A shape by name has the paper's vocabulary.
        known = config.vocab_size is not None or isinstance(config.shape, str)
        architecture = config.architecture(
            0 if known else self._tokenizer_size(config.tokenizer, config.eos_token)
        )
        size = config.shape if isinstance(config.shape, str) else f"{architecture.params}"
        name = f"n{size}-u{config.unique_tokens}-e{config.epochs:g}-wd{config.weight_decay:g}-s{config.seed}"
        if "learning_rate" in cell:
            name += f"-lr{config.learning_rate:g}"
        return StudyRun(name, config, architecture)

    @cached_property
    def _tokenizer_size(self) -> Callable[[str, str | None], int]:
        """Of a tokenizer, which is read or made once for all runs that have the same."""
        from trainer.data.tokenizers import Spec

        return lru_cache(lambda tokenizer, eos_token: Spec(tokenizer, eos_token).size)

    @cached_property
    def shared_learning_rate(self) -> dict[str, float]:
        """What a further cell must say of its learning rate: nothing where the recipe says it for all."""
        rates = sorted({run.config.learning_rate for run in self.runs})
        if len(rates) > 1:
            raise InvalidInput(
                f"study {self.name} has runs at learning rates {', '.join(f'{rate:g}' for rate in rates)}, "
                f"and a law holds for one; the chosen one as learning_rate in the recipe, "
                f"and no learning_rates in the grids, would do."
            )
        axis = not self.cells and all(grid["learning_rates"] for grid in self.grids)
        return {"learning_rate": rates[0]} if axis else {}

    def with_recipe(self, **changes: Any) -> Study:
        """A copy with some settings of the recipe changed; `corpus.tokens` is a field of a table."""
        _check_shared(changes)
        return replace(self, recipe=changed(dict(self.recipe), changes))

    def identity(self) -> dict[str, Any]:
        """What all runs share: two sweeps with different ones do not belong together."""
        return self.runs[0].config.model_dump(
            mode="json", exclude=EXECUTION | _PER_CELL | {"learning_rate"}
        ) | {"learning_rate": self.recipe.get("learning_rate")}

    def _combinations(self) -> Iterator[tuple[str, dict[str, Any], float]]:
        """Where a cell is from, its values, and the FLOPs above which it is left out."""
        for number_, grid in enumerate(self.grids, 1):
            place = f"grid {number_}"
            sizes = [("shape", shape) for shape in grid["shapes"]]
            sizes += [("params", size) for size in grid["params"]]
            names = ["unique_tokens", "epochs", "weight_decay", "seed"]
            axes = [grid[name] for name in ("unique_tokens", "epochs", "weight_decays", "seeds")]
            if grid["learning_rates"]:
                names, axes = [*names, "learning_rate"], [*axes, grid["learning_rates"]]
            for size, values in product(sizes, product(*axes)):
                yield place, dict([size, *zip(names, values, strict=True)]), grid["max_flops"]
        for row, cell in enumerate(self.cells, 1):
            yield f"row {row} of cells", dict(cell), math.inf


def _with_trunks(runs: Iterable[StudyRun]) -> Iterator[StudyRun]:
    """Runs that differ in epochs alone: the longest keeps checkpoints for the others, which begin there."""
    alike: dict[str, list[StudyRun]] = {}
    for run in runs:
        alike.setdefault(run.config.having(epochs=1).fingerprint(), []).append(run)
    for group in alike.values():
        longest = max(group, key=lambda run: run.config.epochs)
        for run in group:
            if run is longest:
                epochs = tuple(sorted(one.config.epochs for one in group if one is not longest))
                yield replace(run, config=run.config.having(branches=epochs))
            else:
                yield replace(run, trunk=longest.name)


def load(source: str | Path) -> Study:
    """A shipped study by its name, or one from a TOML file; paths in it are relative to the file."""
    path = Path(source)
    if not path.is_file() and (SHIPPED / f"{source}.toml").is_file():
        path = SHIPPED / f"{source}.toml"
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        shipped = ", ".join(sorted(known.stem for known in SHIPPED.glob("*.toml")))
        raise InvalidInput(
            f"there is no study {str(source)!r}; give a TOML file or one of {shipped}."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"study {path} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(
            f"{path} is not TOML: {str(error)[:1].lower()}{str(error)[1:].rstrip('.')}."
        ) from None
    try:
        return parse(values, path.stem, path.parent)
    except InvalidInput as error:
        raise InvalidInput(f"{path.name}: {error}") from None


def parse(values: Mapping[str, Any], name: str, folder: Path = Path()) -> Study:
    """A study from the content of its file, every name and value checked."""
    _known(values, _TOP, "a study")
    recipe = values.get("recipe", {})
    if not isinstance(recipe, dict):
        raise InvalidInput("must be a table of settings that all runs share.", field="recipe")
    _check_shared(recipe)
    grids = values.get("grid", [])
    if not isinstance(grids, list) or not all(isinstance(grid, dict) for grid in grids):
        raise InvalidInput("must be written as [[grid]], one for each block of cells.", field="grid")
    study = Study(
        name=name,
        title=_text(values.get("title", ""), "title"),
        recipe=anchored(dict(recipe), folder),
        grids=tuple(_grid(grid, place) for place, grid in enumerate(grids, 1)),
        cells=tuple(_cells(values["cells"], folder)) if "cells" in values else (),
        validation=_validation(values.get("validation", {})),
        needs=_needs(values.get("needs", {})),
        distill=_distill(values["distill"]) if "distill" in values else None,
        trunks=_trunks(values.get("trunks", False), recipe),
    )
    streamed = study.runs[0].config.corpus
    if streamed.streamed and streamed.tokens is None:
        raise InvalidInput(
            "corpus.tokens is missing; a study of a streamed dataset needs the tokens that all its runs "
            "share, such as '6B'."
        )
    return study


def _trunks(value: Any, recipe: Mapping[str, Any]) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"trunks must be true or false; got {value!r}.")
    if value and recipe.get("schedule") != "wsd":
        raise InvalidInput("trunks needs schedule = 'wsd' in the recipe, with which runs begin alike.")
    return value


def _check_shared(recipe: Iterable[str]) -> None:
    """Refuse a recipe with a setting that every cell has of its own."""
    clash = sorted(_PER_CELL.intersection(recipe))
    if clash:
        raise InvalidInput(f"recipe.{clash[0]} differs from run to run; it belongs into a [[grid]].")


def _grid(values: Mapping[str, Any], place: int) -> dict[str, Any]:
    where = f"grid {place}"
    _known(values, (*_AXES, "max_flops"), where)
    try:
        grid: dict[str, Any] = {
            name: [read(value) for value in _several(values, name, *default)]
            for name, (read, *default) in _AXES.items()
        }
        grid["max_flops"] = compute(values["max_flops"], "max_flops") if "max_flops" in values else math.inf
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None
    if not grid["shapes"] and not grid["params"]:
        raise InvalidInput(
            f"{where} has no sizes; params such as ['60k', '200k'] or shapes such as ['25M'] would do."
        )
    return grid


def _validation(values: Any) -> Validation:
    if not isinstance(values, dict):
        raise InvalidInput("must be a table with pairs of ud and flops.", field="validation")
    _known(values, _VALIDATION, "validation")
    found: dict[str, Any] = {}
    for name in values:
        read = _VALIDATION[name]
        one = name in ("seeds", "max_params")
        found[name] = read(values[name]) if one else tuple(map(read, _several(values, name)))
    return Validation(**found)


def _pair(pair: Any) -> tuple[float, float]:
    if not isinstance(pair, dict) or set(pair) != {"ud", "flops"}:
        raise InvalidInput(f"validation.pairs are written as {{ ud = '64k', flops = 2e12 }}; got {pair!r}.")
    return count(pair["ud"], "validation.pairs.ud"), compute(pair["flops"], "validation.pairs.flops")


def _needs(values: Any) -> Needs:
    """What an engine has to have for each run."""
    if not isinstance(values, dict):
        raise InvalidInput("needs must be a table with gpus, memory or threads.")
    _known(values, _NEEDS, "needs")
    gpus = number(values["gpus"], "needs.gpus", positive=False, examples="0.5") if "gpus" in values else None
    if gpus is not None and gpus > 1 and gpus != int(gpus):
        raise InvalidInput(f"needs.gpus must be a part of one or a whole number; got {gpus:g}.")
    return Needs(
        gpus=gpus,
        memory=_bytes(values["memory"]) if "memory" in values else None,
        threads=whole(values["threads"], "needs.threads", example="2") if "threads" in values else 0,
        accelerator=_text(values["accelerator"], "needs.accelerator") if "accelerator" in values else None,
    )


def _distill(values: Any) -> dict[str, float]:
    """How one model learns from the members of an ensemble, as `planner distill` has it."""
    if not isinstance(values, dict):
        raise InvalidInput("must be a table of weight and temperature.", field="distill")
    _known(values, ("weight", "temperature"), "distill")
    given = {"weight": 0.9, "temperature": 1.0} | values
    found = {name: number(value, name) for name, value in given.items()}
    if found["weight"] > 1:
        raise InvalidInput(f"must be at most 1; got {found['weight']:g}.", field="weight")
    return found


def _bytes(value: Any) -> int:
    found = re.fullmatch(r"\s*([\d.]+)\s*([KMGT]?I?)B?\s*", str(value).upper())
    if found is None or found[2] not in _BYTES:
        raise InvalidInput(f"needs.memory is written as '16GiB' or in bytes; got {value!r}.")
    return round(float(found[1]) * _BYTES[found[2]])


def _cells(source: Any, folder: Path) -> Iterator[dict[str, Any]]:
    """The cells of a table: params, unique_tokens, epochs, weight_decay, and seed where it has one."""
    import pandas as pd

    path = folder / _text(source, "cells")
    try:
        table = pd.read_csv(path)
    except FileNotFoundError:
        raise InvalidInput(
            f"cells: there is no file {path}; `planner calibrate design -o FILE` writes one."
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cells: {path} cannot be read: {str(error).rstrip('.')}.") from None
    missing = [name for name in ("params", "unique_tokens", "epochs", "weight_decay") if name not in table]
    if missing:
        raise InvalidInput(f"cells: {path} has no column {missing[0]}.")
    for row, values in enumerate(table.to_dict("records"), 1):
        try:
            yield {
                "params": round(count(values["params"], "params")),
                "unique_tokens": round(count(values["unique_tokens"], "unique_tokens")),
                "epochs": number(values["epochs"], "epochs", examples="4"),
                "weight_decay": number(
                    values["weight_decay"], "weight_decay", positive=False, examples="0.1"
                ),
                "seed": _seed(values.get("seed", 0)),
            }
        except InvalidInput as error:
            raise InvalidInput(f"cells: row {row} of {path}: {error}") from None


def _known(values: Mapping[str, Any], names: Iterable[str], what: str) -> None:
    for name in values:
        if name not in names:
            close = difflib.get_close_matches(str(name), list(names), n=1)
            hint = f"did you mean {close[0]}" if close else f"there are {', '.join(names)}"
            raise InvalidInput(f"{name} is not a setting of {what}; {hint}.")


def _several(values: Mapping[str, Any], name: str, default: list[Any] | None = None) -> list[Any]:
    """A list; one value alone is a list of one."""
    if name not in values:
        if default is None:
            raise InvalidInput(f"{name} is missing.")
        return default
    found: list[Any] = values[name] if isinstance(values[name], list) else [values[name]]
    if not found:
        raise InvalidInput(f"{name} is empty.")
    return found


def _seed(value: Any) -> int:
    whole_number = (
        isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()
    )
    if not whole_number or value < 0:
        raise InvalidInput(f"must be whole numbers from 0 on; got {value!r}.", field="seeds")
    return int(value)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be text; got {value!r}.")
    return value


# How the values of each axis of a grid are read, and what they are where the grid does not name it.
_AXES: dict[str, tuple[Any, ...]] = {
    "params": (lambda value: round(count(value, "params")), []),
    "shapes": (lambda name: preset(name).preset or name, []),
    "unique_tokens": (lambda value: round(count(value, "unique_tokens")),),
    "epochs": (lambda value: number(value, "epochs", examples="4"),),
    "weight_decays": (lambda value: number(value, "weight_decays", positive=False, examples="0.1"),),
    "seeds": (_seed, [0]),
    "learning_rates": (lambda value: number(value, "learning_rates", examples="0.01"), []),
}
# The same for the fields of a validation.
_VALIDATION: dict[str, Any] = {
    "pairs": _pair,
    "laws": check_form,
    "weight_decays": lambda v: number(v, "validation.weight_decays", positive=False, examples="0.1"),
    "seeds": lambda value: whole(value, "validation.seeds", example="3"),
    "max_params": lambda value: count(value, "validation.max_params"),
    "crossover_uds": lambda ud: count(ud, "validation.crossover_uds"),
    "crossover_factors": lambda factor: number(factor, "validation.crossover_factors", examples="0.5"),
}
