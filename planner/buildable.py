"""From a plan to a model that can be built: its shape, and what to be careful about."""

from __future__ import annotations

from planner import units
from planner.calibration_files import Calibration, Setting
from planner.costs import Cost
from planner.errors import InvalidInput
from planner.remarks import Remark
from planner.shapes import DEFAULT_VOCAB, Architecture, shape_for
from planner.uncertainty import range_warnings


def buildable(
    known: Calibration,
    setting: Setting,
    vocab_size: int | None,
    *,
    params: float,
    unique_tokens: float,
    epochs: float,
    loss: float,
) -> tuple[Architecture | None, list[Remark]]:
    """A shape for the model, and what to be careful about."""
    warnings = range_warnings(setting, params, unique_tokens, epochs)
    vocab = (known.vocab_size or DEFAULT_VOCAB) if vocab_size is None else vocab_size
    if vocab_size is None and known.vocab_size is None:
        text = (
            f"calibration {known.name} does not say its vocabulary: the model shape assumes {vocab:,} rows."
        )
        warnings.append(Remark("vocabulary_unknown", text))
    elif known.vocab_size not in (None, vocab):
        text = (
            f"the laws were fitted with a vocabulary of {known.vocab_size:,} and not {vocab:,}: "
            f"losses per token are then not comparable, and embeddings take another share of the model."
        )
        warnings.append(Remark("vocabulary_differs", text))
    architecture = None
    try:
        architecture = shape_for(params, vocab, tied_embeddings=bool(known.tied_embeddings))
    except InvalidInput as error:
        warnings.append(Remark("no_shape", str(error)))
    if architecture is not None and architecture.absurd:
        warnings.append(_absurd(architecture))
    return architecture, warnings + above_guessing(known, loss)


def above_guessing(known: Calibration, loss: float) -> list[Remark]:
    """That a predicted loss is none that a law describes."""
    if loss <= known.guessing_loss:
        return []
    text = (
        f"the predicted loss {loss:.4g} is above that of guessing ({known.guessing_loss:.3g}): "
        f"no law describes such a plan."
    )
    return [Remark("above_guessing", text)]


def too_large(bill: Cost | None) -> list[Remark]:
    """That training does not fit into the memory of the accelerators at hand."""
    if bill is None or bill.memory is None or bill.memory.trainable_on(bill.gpus):
        return []
    more = " or more accelerators" if bill.memory.devices_needed else ""
    text = (
        f"training takes {units.size(bill.memory.total)} and {bill.fits(bill.gpu)}: a smaller model "
        f"(max_params){more} would do."
    )
    return [Remark("memory", text)]


def _absurd(shape: Architecture) -> Remark:
    """Why a shape is not worth training."""
    rest = f"{units.short(shape.non_embedding_params)} of {units.short(shape.params)} parameters"
    text = (
        f"nobody trains such a shape (d_model {shape.d_model}, {shape.layers} layers): a vocabulary of "
        f"{shape.vocab_size:,} leaves {rest} for its layers; a smaller vocabulary would do."
    )
    return Remark("absurd_shape", text)
