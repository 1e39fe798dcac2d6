"""Run tables: one row per finished run, read from wherever people have them, and checked before anything is
fitted.

    run, params, unique_tokens, epochs, tokens, weight_decay, loss      (other columns are kept as they are)
    learning_rate, batch_tokens, steps, dropout                         (numbers, where the table has them)

Two of unique_tokens, tokens and epochs are enough; steps are tokens / batch_tokens. Counts may be written as
people say them ("250M"). All bad cells are reported together, by row and column; mistaken units are named
with their cure. The source is only read. `formats` has the sources, `filters` says which rows are used,
`checks` what is wrong; here is the way through them, and which column of somebody's table is which of ours:
as they say (`columns`), inside the names of the runs (`pattern`), or by obvious names, and said.

    columns="params=config.n_params, loss=summary/val_loss"       names as they are in the table
    columns="params=size*1e6, loss=ln(perplexity)"                other units: a factor, or a logarithm
    pattern="{params}_{tokens}_{epochs}ep"                        1b5_30b_4ep: 1.5B parameters, 30B tokens

Names are compared without case, punctuation and the prefixes that loggers add (config., opt., eval/).
A field of a pattern is a column of ours or any other word, which becomes a column; `*` stands for anything.
Numbers inside names may have a unit (100m, 1.5B, 1b5, 2p8b), decimals may be written 0p1.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
import pandas as pd

from calibration.fitting.runs.checks import (
    COLUMNS,
    COUNTS,
    DOES_NOT_FIT,
    RECIPE,
    TOKENS,
    WARNINGS,
    WHOLE_TABLE,
    Problem,
    RawTable,
    TableWarning,
    check_rows,
    is_missing,
    listed,
    near_names,
    plain_number,
    read_numbers,
    sanity_checks,
    unread_recipes,
)
from calibration.fitting.runs.filters import RowFilter
from calibration.fitting.runs.formats import Table, load
from calibration.fitting.runs.recipes import (
    STEPS_CHOSEN,
    STEPS_NEEDED,
    comparable_runs,
    steps_needed,
    with_enough_steps,
)
from planner.calibration import Calibration
from planner.inputs import InvalidInput, named, number, short

Columns = str | Mapping[str, str]
_READING = "reading"  # among the attributes of a table


class Reading(TypedDict, total=False):
    """How a table is read, and which of its rows are used."""

    max_epochs: Any  # leave out runs beyond so many
    where: str | None  # a condition, see `filters`
    weight_decay: Any  # of runs whose table does not say it
    columns: Columns | None  # "params=config.n_params,loss=summary/val_loss"
    pattern: str | None  # "{params}_{tokens}_{epochs}ep"
    drop_missing: bool  # leave out runs that came to no end or do not say what is needed


@dataclass(frozen=True)
class Origin:
    """Where the runs of a table come from: what a calibration says about itself besides its laws. Nothing of
    it is needed for a fit.
    """

    title: str = ""
    corpus: str = ""
    model_family: str = ""
    vocab_size: int | None = None
    tied_embeddings: bool | None = None
    data_fingerprint: str | None = None  # of the tokens that were trained on
    recipe: dict[str, Any] | None = None  # learning rate, batch and schedule, as `planner` keeps them
    bytes_per_token: float | None = None

    def facts(self) -> dict[str, Any]:
        """What is known, as fields of a calibration."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value not in ("", None)}


def read_runs(
    source: Table, *, name: str | None = None, weight_decay_is_choice: bool = False, **how: Unpack[Reading]
) -> pd.DataFrame:
    """The run table of a source, checked: all columns, numbers as floats.

    `where` and `max_epochs` choose rows; rows that they leave out need not be usable, and with `drop_missing`
    neither do runs that crashed. `columns` and `pattern` say where our columns are; obvious names are
    guessed. `weight_decay` is that of all runs whose table does not say it; where all say it, giving it is a
    mistake, unless the caller goes on to choose by it. `name` is what messages call a DataFrame.
    `warnings_of` has what was noticed on the way.
    """
    limit, decay, condition = how.get("max_epochs"), how.get("weight_decay"), how.get("where")
    limit = None if limit is None else number(limit, "max_epochs", examples="64")
    decay = None if decay is None else number(decay, "weight_decay", positive=False)
    where = None if condition is None else RowFilter(condition)
    raw = with_our_columns(_loaded(source, name or "the run table"), how.get("columns"), how.get("pattern"))
    if decay is not None:
        _check_weight_decay(raw, decay, weight_decay_is_choice)
    table, problems = read_numbers(raw, decay)
    chosen, deciding, conditions = np.ones(len(table), dtype=bool), set[str](), list[str]()
    if limit is not None:
        chosen, deciding = table["epochs"].to_numpy() <= limit, {*TOKENS}
        conditions.append(f"‹max_epochs› {limit:g}")
    if where is not None:
        chosen, deciding = chosen & where(table), deciding | where.columns
        conditions.append(f"‹where› {where.text!r}")
    drop = how.get("drop_missing", False)
    used, left_out = check_rows(raw, table, problems, chosen, deciding, drop_missing=drop)
    if not used.any():
        why = " and ".join(conditions + ["‹drop_missing›"] * bool(left_out))
        raise InvalidInput(f"no run of {raw.name} is left after {why}; a wider condition would do.")
    unread = unread_recipes(raw, table, used)
    # What the whole table shows of steps holds for a part of it, which need not show it.
    whole = table[table[list(COLUMNS[1:])].notna().all(axis=1)]
    table = table[used].reset_index(drop=True)
    table.attrs[STEPS_NEEDED] = steps_needed(whole)
    table.attrs[STEPS_CHOSEN] = where is not None and "steps" in where.columns
    doubts = sanity_checks(table, raw.taken, with_enough_steps(table)[0], comparable_runs(table))
    table.attrs[WARNINGS] = [list(warning) for warning in (*raw.warnings, *left_out, *unread, *doubts)]
    read = {**how, "max_epochs": limit, "weight_decay": decay, "where": where and where.text}
    table.attrs[_READING] = _as_said(read)
    return table


def _as_said(read: Mapping[str, Any]) -> dict[str, Any]:
    """How a table was read, as it can be said again; a weight decay of zero is one that was given."""
    told = {**read, "columns": _given(read.get("columns"))}
    return {name: value for name, value in told.items() if value or isinstance(value, float)}


def _check_weight_decay(raw: RawTable, decay: float, is_choice: bool) -> None:
    """Refuse a weight decay that is given for runs which say their own: all of them, unless the caller
    chooses by it, or in a column that varies and whose name says weight decay.
    """
    if "weight_decay" not in raw.cells:
        for column in near_names(raw.cells, "weight_decay"):
            if raw.cells[column].map(plain_number).nunique() > 1:
                raise InvalidInput(
                    f"{decay:g} was given for runs that do not say theirs, but {column} of {raw.name} "
                    f"differs between runs; if that is theirs, say so: ‹columns› weight_decay={column}.",
                    field="weight_decay",
                )
    elif not is_choice and not raw.cells["weight_decay"].map(is_missing).any():
        raise InvalidInput(
            f"{decay:g} was given for runs that do not say theirs, but all of {raw.name} do; "
            f"leave it out, or choose runs with ‹where› 'weight_decay == {decay:g}'.",
            field="weight_decay",
        )


def _loaded(source: Table, name: str) -> RawTable:
    raw = load(source, name)
    names = raw.cells.columns
    twice = sorted({str(column) for column in names[names.duplicated()]})
    if twice:
        raise InvalidInput(
            f"{raw.name} has the column {twice[0]!r} more than once; rename or drop one of them."
        )
    if not len(raw.cells):
        raise InvalidInput(f"{raw.name} has no runs; it needs rows with the columns {', '.join(COLUMNS)}.")
    return dataclasses.replace(raw, cells=raw.cells.reset_index(drop=True))


def warnings_of(table: pd.DataFrame, name: Callable[[str], str] = str) -> list[TableWarning]:
    """What was noticed when a table was read: (code, text, whether it is a warning); nothing for a table that
    was not read. `name` says what to call the options that a text mentions.
    """
    found = [TableWarning(*warning) for warning in table.attrs.get(WARNINGS, ())]
    return [warning._replace(text=named(warning.text, name)) for warning in found]


def with_reading(table: pd.DataFrame, calibration: Calibration) -> Calibration:
    """The calibration with how the table that it was fitted to was read (`reading`, the options of
    `Reading`), and what was noticed about it; plans repeat warnings.
    """
    kept: dict[str, Any] = {}
    if reading := table.attrs.get(_READING):
        kept["reading"] = reading
    if found := warnings_of(table):
        doubts = [f"{warning.text}." for warning in found if warning.warns]
        kept["table_notes"] = [warning._asdict() for warning in found]
        kept["settings"] = tuple(
            setting.model_copy(update={"warnings": [*setting.warnings, *doubts]})
            for setting in calibration.settings
        )
    return calibration.model_copy(update=kept) if kept else calibration


# -- which column is which

_EXAMPLE = "params=config.n_params,loss=summary/val_loss"

# Best first. A name in this form may stand in the table with any prefix, case and punctuation.
_NAMES = """
run: run run_name name display_name experiment run_id id
params: params total_params total_parameters n_params num_params n_parameters num_parameters parameters
  nparams param_count parameter_count params_total number_of_parameters trainable_params num_trainable_params
  model_size n
unique_tokens: unique_tokens ud u_d n_unique_tokens num_unique_tokens tokens_unique unique_train_tokens
  dataset_tokens corpus_tokens tokens_in_dataset data_tokens
epochs: epochs num_epochs n_epochs num_train_epochs train_epochs max_epochs epoch
tokens: tokens total_tokens train_tokens training_tokens tokens_seen num_tokens_seen num_input_tokens_seen
  tokens_total n_tokens num_tokens consumed_tokens num_train_tokens tokens_processed total_tokens_seen
  total_train_tokens total_training_tokens n_tokens_seen tokens_trained throughput_total_tokens time_token d
weight_decay: weight_decay weightdecay wd adam_weight_decay adamw_weight_decay
learning_rate: learning_rate peak_learning_rate max_learning_rate lr peak_lr max_lr
batch_tokens: batch_tokens tokens_per_batch tokens_per_step batch_size_tokens batch_size_in_tokens
  global_batch_tokens
steps: steps train_steps training_steps num_steps n_steps num_train_steps total_steps
dropout: dropout dropout_rate dropout_p
loss: final_val_loss val_loss valid_loss validation_loss eval_loss loss_val loss_eval loss_validation
  val_loss_final validation_cross_entropy val_cross_entropy val_ce val_nll eval_nll test_loss dev_loss
  heldout_loss held_out_loss final_loss cross_entropy nll loss
prefixes: config_ cfg_ summary_metrics_ summary_ hparams_ hparam_ hyperparameters_ args_ training_args_ model_
  optimizer_ optimiser_ optim_ opt_ trainer_ data_ dataset_config_ metrics_ raw_config_
"""
_KNOWN = {key: names.split() for key, names in re.findall(r"^(\w+):((?:.|\n )*)", _NAMES, re.MULTILINE)}
_PREFIXES = _KNOWN.pop("prefixes")
for _counted in ("tokens", "epochs"):  # loggers file them under train/, as train/tokens_seen
    _KNOWN[_counted] += [f"train_{name}" for name in _KNOWN[_counted] if not name.startswith("train")]
_VALIDATION = frozenset(_KNOWN["loss"][: _KNOWN["loss"].index("test_loss")])
_OF = {"val_", "eval_", "validation_", "valid_", "test_", "final_val_", "final_", ""}
_PERPLEXITY = frozenset(of + what for of in _OF for what in ("perplexity", "ppl"))
_BITS = frozenset(of + what for of in _OF for what in ("bits_per_token", "bpt"))
_BYTES = ("bits_per_byte", "bpb", "bits_per_char", "bpc")
_BITS_PER_BYTE = frozenset(of + what for of in _OF for what in _BYTES)
_ASIDE = frozenset({"state", "status", "tokenizer", "vocab_size", "seed"})
_TRAINING = frozenset({"train_loss", "training_loss", "loss_train"})
_UNITS = {
    **dict.fromkeys(("k", "thousands"), 1e3),
    **dict.fromkeys(("m", "mm", "million", "millions"), 1e6),
    **dict.fromkeys(("b", "bn", "billion", "billions"), 1e9),
}
_INSIDE = re.compile(r"(.+)[/.:]([^/.:]+)")  # the groups that a logger files a column under, and its name
# Groups whose columns are about something else: another loss than the last, another model, part of one.
_OTHER_GROUP = re.compile(r"best|min|max|init|ema|emb|active|teacher|draft|tokenizer", re.I)
_VALIDATION_GROUP = re.compile(r"val|eval|test|dev", re.I)  # whose tokens are not those of the training
_WRITTEN_OUT = 1e6  # numbers from here on are not in millions, whatever their column's name
_OURS = (*COLUMNS, *RECIPE)
_DOCUMENTED = {("tokens", "total_tokens")}  # a name of ours, and not worth saying
_LOGARITHM = re.compile(r"(?:ln|log)\((.+)\)")
_PRODUCT = re.compile(r"(.+?)\s*\*\s*([\d.]+(?:e[+-]?\d+)?)", re.I)


class _Meant(NamedTuple):
    """A column of the table and what to do with its cells."""

    column: str
    change: Callable[[float], float] | None = None
    how: str = ""  # in words, after its name


def with_our_columns(raw: RawTable, columns: Columns | None, pattern: str | None) -> RawTable:
    """The table with our columns: as the caller says, from the names of the runs, and those that it has under
    obvious names, with a warning that says so.
    """
    raw = _with(raw, _said(raw, _given(columns)))
    of_runs, _ = _guesses(raw, ["run"])
    raw = _with(raw, of_runs)
    if pattern is not None:
        raw = _with_settings(raw, pattern)
    others, unclear = _guesses(raw, _OURS)
    guesses = of_runs | others
    said = [
        f"{ours} from {meant.column}{meant.how}"
        for ours, meant in guesses.items()
        if (ours, meant.column) not in _DOCUMENTED
    ]
    warnings = [TableWarning("columns_guessed", f"read {', '.join(said)}")] if said else []
    raw = dataclasses.replace(raw, ragged=(*raw.ragged, *unclear), warnings=(*raw.warnings, *warnings))
    return _with(raw, guesses)


def _guesses(raw: RawTable, wanted: Sequence[str]) -> tuple[dict[str, _Meant], list[Problem]]:
    """Those of our columns that the table has under other names, and why others cannot be guessed."""
    forms = {str(column): _plain(str(column)) for column in raw.cells.columns}
    found: dict[str, _Meant] = {}
    unclear = []
    for ours in wanted:
        try:
            if ours not in raw.cells:
                meant = _guess(raw, ours, forms) or (_other_loss(raw, forms) if ours == "loss" else None)
                found |= {} if meant is None else {ours: meant}
            elif ours == "loss":
                _check_loss(raw, forms)
        except InvalidInput as error:
            unclear.append(Problem(WHOLE_TABLE, ours, "", error.args[0].removesuffix(".")))
    return found, unclear


def may_be_ours(name: str) -> bool:
    """Whether a column of this name is one of those that are looked at."""
    plain = _plain(name)
    stem, _, unit = plain.rpartition("_")
    known = _EXACT | _PERPLEXITY | _BITS | _BITS_PER_BYTE | _TRAINING | _ASIDE
    return plain in known or (unit in _UNITS and stem.removesuffix("_in") in _EXACT)


def _given(columns: Columns | None) -> dict[str, str]:
    """What the caller says, as our names and theirs."""
    if columns is None:
        return {}
    if isinstance(columns, str):
        parts = [part.partition("=") for part in re.split(r"[,\n](?=[^,=]*=)", columns) if part.strip()]
        found = {ours.strip(): theirs.strip() for ours, _, theirs in parts}
        complete = len(found) == len(parts) > 0
    else:
        complete = isinstance(columns, Mapping)
        found = {str(ours): str(theirs).strip() for ours, theirs in columns.items()} if complete else {}
    if not complete or not all(found.values()):
        raise InvalidInput(f"must be pairs such as {_EXAMPLE}, each once; got {columns!r}.", field="columns")
    for ours in found:
        if ours not in _OURS:
            raise InvalidInput(f"knows {', '.join(_OURS)}; got {ours!r}.", field="columns")
    return found


def _said(raw: RawTable, columns: Mapping[str, str]) -> dict[str, _Meant]:
    """What the caller means, column by column; raises where the table lacks some of them."""
    found = {ours: _meant(raw, theirs) for ours, theirs in columns.items()}
    if lacking := [f"{ours} from {columns[ours]!r}" for ours, meant in found.items() if meant is None]:
        names = listed([str(column) for column in raw.cells.columns])
        raise InvalidInput(f"takes {' and '.join(lacking)}; {raw.name} has {names}.", field="columns")
    return {ours: meant for ours, meant in found.items() if meant is not None}


def _meant(raw: RawTable, theirs: str) -> _Meant | None:
    """A column, a multiple of one, or its logarithm; None where the table has no such column."""
    if (column := _same(raw, theirs)) is not None:
        return _Meant(column)
    if (inner := _LOGARITHM.fullmatch(theirs)) and (column := _same(raw, inner[1].strip())) is not None:
        return _Meant(column, _ln)
    if (product := _PRODUCT.fullmatch(theirs)) and (column := _same(raw, product[1])) is not None:
        return _Meant(column, _times(float(product[2])))
    return None


def _same(raw: RawTable, name: str) -> str | None:
    """The column of this name; summary/val_loss and summary.val_loss are one."""
    if name in raw.cells:
        return name
    first, *others = (re.sub(r"[./ ]+", ".", str(c).strip().lower()) for c in (name, *raw.cells.columns))
    alike = [str(column) for column, other in zip(raw.cells.columns, others, strict=True) if other == first]
    return alike[0] if len(alike) == 1 else None


def _with(raw: RawTable, found: Mapping[str, _Meant]) -> RawTable:
    """The table with these columns; a cell that is to be changed and is no number stays, and is reported by
    `checks`.
    """
    cells = raw.cells.copy()
    for ours, (column, change, _) in found.items():
        cells[ours] = raw.cells[column]
        if change is not None:
            numbers = [(cell, plain_number(cell)) for cell in raw.cells[column]]
            changed = [cell if value != value else change(value) for cell, value in numbers]
            cells[ours] = pd.Series(changed, index=cells.index, dtype=object)
    taken = {**raw.taken, **{ours: meant.column for ours, meant in found.items()}}
    return dataclasses.replace(raw, cells=cells, taken=taken)


def _ln(value: float) -> float:
    return math.log(value) if value > 0 else math.nan


def _times(factor: float) -> Callable[[float], float]:
    return lambda value: value * factor


# -- guesses -------------------------------------------------------------------------------------------------


def _plain(name: str) -> str:
    """A name without case, punctuation and what loggers put in front of it: certain words, and any group
    before a name of several words, which says enough by itself (opt.weight_decay, eval/c4/val_loss).
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", name)
    plain = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")
    while prefix := next((p for p in _PREFIXES if plain.startswith(p) and plain not in _EXACT), None):
        plain = plain.removeprefix(prefix)
    if plain not in _EXACT and (inside := _INSIDE.fullmatch(name)) and not _OTHER_GROUP.search(inside[1]):
        own = _plain(inside[2])
        of_training = own in _VALIDATION or not _VALIDATION_GROUP.search(inside[1])
        plain = own if "_" in own and own in _EXACT and of_training else plain
    return plain


_EXACT = frozenset(name for names in _KNOWN.values() for name in names)


def _guess(raw: RawTable, ours: str, forms: Mapping[str, str]) -> _Meant | None:
    """The column that is obviously meant; raises where two are and they differ."""
    for name in _KNOWN[ours]:
        there = [column for column, form in forms.items() if form == name and _may_be(raw, column, ours)]
        if ours in RECIPE and there and not _equal(raw, there):
            return None
        if len(there) > 1 and ours != "run" and not _equal(raw, there):
            raise InvalidInput(
                f"{raw.name} has {ours} in {' and in '.join(map(repr, there))}, and they differ; "
                f"say which it is: ‹columns› {ours}={there[0]}."
            )
        if there:
            return _Meant(there[0])
    return _in_units(raw, ours, forms) if ours in COUNTS else None


def _may_be(raw: RawTable, column: str, ours: str) -> bool:
    """Whether a column of the right name holds what ours does."""
    if ours == "run":
        return _is_a_name(raw.cells[column])
    # A summary has what was logged last: of a rate, the end of its schedule.
    return _filled(raw, column) and not (ours in RECIPE and column.lower().startswith("summary"))


def _in_units(raw: RawTable, ours: str, forms: Mapping[str, str]) -> _Meant | None:
    """A column such as "params (M)", whose name says that it counts millions."""
    for column, form in forms.items():
        name, _, unit = form.rpartition("_")
        if unit not in _UNITS or name.removesuffix("_in") not in _KNOWN[ours]:
            continue
        if raw.cells[column].map(plain_number).max() < _WRITTEN_OUT:  # not where there are no numbers
            return _Meant(column, _times(_UNITS[unit]), f" times {_UNITS[unit]:.0e}".replace("e+0", "e"))
    return None


def _check_loss(raw: RawTable, forms: Mapping[str, str]) -> None:
    """Refuse a column `loss` next to another one that is certainly the validation loss."""
    if "loss" in raw.taken:
        return
    for column, form in forms.items():
        if form in _VALIDATION and _filled(raw, column) and not _equal(raw, ["loss", column]):
            raise InvalidInput(
                f"{raw.name} has both loss and {column}, and they differ; "
                f"say which is the validation loss: ‹columns› loss={column}."
            )


def _other_loss(raw: RawTable, forms: Mapping[str, str]) -> _Meant | None:
    """The loss from a column that holds it in another form; raises where that cannot be known."""
    for known, change, how in (
        (_PERPLEXITY, _ln, " as its logarithm"),
        (_BITS, _times(math.log(2)), " times ln 2"),
    ):
        there = [column for column, form in forms.items() if form in known and _filled(raw, column)]
        if there:
            return _Meant(there[0], change, how)
    for column, form in forms.items():
        if form in _BITS_PER_BYTE:
            raise InvalidInput(
                f"{raw.name} has the loss in bits per byte ({column}), laws are about nats per token; "
                f"multiply by ln 2 and the tokenizer's bytes per token: ‹columns› loss={column}*2.9 at 4.2 "
                f"bytes per token."
            )
        if near := near_names(raw.cells, "loss"):
            raise InvalidInput(
                f"{raw.name} has no column loss; {listed(near, 4)} may be the validation loss; "
                f"say so: ‹columns› loss={near[0]}."
            )
        if form in _TRAINING:
            raise InvalidInput(
                f"{raw.name} has no column loss, only {column}; laws are about the validation loss "
                f"(‹columns› loss={column} takes it all the same)."
            )
    return None


def _filled(raw: RawTable, column: str) -> bool:
    return not raw.cells[column].map(is_missing).all()


def _is_a_name(cells: pd.Series) -> bool:
    """Whether each run has one of its own."""
    return not cells.map(is_missing).any() and not cells.map(str).duplicated().any()


def _equal(raw: RawTable, columns: Sequence[str]) -> bool:
    """Whether these columns say the same wherever both say something."""
    first, *others = (raw.cells[column].map(plain_number).to_numpy(dtype=float) for column in columns)
    with np.errstate(invalid="ignore"):
        return all(not np.any(np.abs(first - other) > 1e-9 * np.abs(first)) for other in others)


# -- settings inside run names

_PATTERN = "{params}_{tokens}_{epochs}ep"
_LONGEST = 200
_FIELD = re.compile(r"\{(\w*)\}|(\*)")
_WRITTEN = r"\d+(?:[.p]\d+)?(?:e[+-]?\d+)?(?:[kmbgt]\d*)?"
_PARTS = re.compile(r"(\d+)(?:[.p](\d+))?(e[+-]?\d+)?(?:([kmbgt])(\d*))?", re.I)
_LETTERS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


def _with_settings(raw: RawTable, pattern: str) -> RawTable:
    """The table with the settings that its runs' names hold. Names that do not fit are problems of the table;
    a column that the table has already is kept.
    """
    expression, fields = _compiled(pattern)
    if "run" not in raw.cells:
        raise InvalidInput(
            f"reads run names, and {raw.name} has none; say where they are: ‹columns› run=NAME.",
            field="pattern",
        )
    matches = [expression.fullmatch(str(name).strip()) for name in raw.cells["run"]]
    misfits = [
        Problem(row, "run", repr(str(name)), f"{DOES_NOT_FIT} {pattern}")
        for row, (name, match) in enumerate(zip(raw.cells["run"], matches, strict=True), start=1)
        if match is None
    ]
    if len(misfits) == len(matches):
        raise InvalidInput(
            f"{pattern!r} fits no run of {raw.name}, such as {misfits[0].value}.", field="pattern"
        )
    cells = raw.cells.copy()
    for field in fields:
        texts = [None if match is None else match[field] for match in matches]
        values = [written_number(text) if text and field in _OURS else text for text in texts]
        if field not in cells:
            cells[field] = pd.Series(values, index=cells.index, dtype=object)
    said = TableWarning("settings_from_names", f"read {', '.join(fields)} from the names of the runs")
    return dataclasses.replace(
        raw, cells=cells, ragged=(*raw.ragged, *misfits), warnings=(*raw.warnings, said)
    )


def _compiled(pattern: str) -> tuple[re.Pattern[str], list[str]]:
    if not isinstance(pattern, str) or len(pattern) > _LONGEST or not _FIELD.search(pattern):
        raise InvalidInput(f"must be a pattern such as {_PATTERN!r}; got {pattern!r}.", field="pattern")
    parts, fields, at, open_before = [], [], 0, False
    for match in _FIELD.finditer(pattern):
        text, name = pattern[at : match.start()], match[1]
        if open_before and not text:
            raise InvalidInput(
                f"cannot tell where {match[0]} begins; put what parts them between two fields.",
                field="pattern",
            )
        parts.append(re.escape(text))
        if not name:
            parts.append(".*")
        else:
            if name in fields or name in ("run", "loss"):
                problem = "has it twice" if name in fields else "cannot be part of a name"
                raise InvalidInput(f"{{{name}}} {problem}: {pattern!r}.", field="pattern")
            fields.append(name)
            parts.append(f"(?P<{name}>{_WRITTEN if name in _OURS else '[^/]+?'})")
        at, open_before = match.end(), True
    parts.append(re.escape(pattern[at:]))
    if not fields:
        raise InvalidInput(f"names no field; {_PATTERN!r} would do.", field="pattern")
    try:
        return re.compile("".join(parts), re.IGNORECASE), fields
    except re.error:
        raise InvalidInput(
            f"must be a pattern such as {_PATTERN!r}; got {pattern!r}.", field="pattern"
        ) from None


def written_number(text: str) -> float:
    """A number as names have it: 100m, 1.5B, 1b5 and 1p5b are 1.5e9, 0p1 is 0.1."""
    match = _PARTS.fullmatch(text)
    if match is None:
        raise InvalidInput(f"must be a number such as 100m or 1b5; got {text!r}.")
    whole, decimals, exponent, unit, after = (part or "" for part in match.groups())
    return float(f"{whole}.{decimals or after or 0}{exponent}") * _LETTERS[unit.lower()]


def by_weight_decay(runs: pd.DataFrame) -> list[list[str]]:
    """What a table holds at each weight decay: runs, those of one epoch, parameters, unique tokens, the most
    epochs, and losses.
    """

    def span(values: pd.Series, show: Callable[[float], str]) -> str:
        return " to ".join(dict.fromkeys(show(float(end)) for end in (values.min(), values.max())))

    return [
        [
            str(float(here["weight_decay"].iloc[0])),
            f"{len(here):,}",
            f"{int((here['epochs'] <= 1).sum()):,}",
            span(here["params"], short),
            span(here["unique_tokens"], short),
            f"{here['epochs'].max():g}",
            span(here["loss"], "{:.3f}".format),
        ]
        for _, here in runs.groupby("weight_decay")
    ]
