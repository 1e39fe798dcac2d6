"""What a plan remarks on: text for people, with a code for programs that does not change with the wording."""

from __future__ import annotations

from typing import Any

CODES = {
    # reasons
    "least_compute": "the compute is the least that reaches the loss asked for",
    "target_within_error": "the loss asked for is below what the law expects, but within its own error",
    "unused_compute": "compute is left, and what would help instead",
    "ensemble_instead": "what all of the compute would buy as an ensemble",
    "ensemble_elsewhere": "what is known of ensembles from elsewhere, where the calibration has none",
    "ensemble_compared": "several models, averaged, against the best single one for the same total",
    "ensemble_starts": "from which total on several members are better than one model",
    "ensemble_limit": "what one member and infinitely many would reach, and what is as good at less",
    "ensemble_cost": "memory and compute of serving an ensemble",
    "distilled": "what one model distilled from the ensemble may keep of its gain",
    "serving_cost": "what serving takes next to training",
    "data_bought": "what data is bought and what that leaves for compute",
    "cheaper_as_good": "a cheaper plan cannot be told from this one",
    "stop_spending": "less compute than was to be spent has a lower loss, by more than the law's error",
    "less_would_do": "less compute would do at least as well as this plan, as far as the law can tell",
    "instead": "what to do instead of spending more",
    "data_plentiful": "part of the corpus is enough, nothing is repeated",
    "whole_epochs_cost": "a fraction of an epoch would be noticeably better",
    "weight_decay_compared": "what the other weight decay would reach",
    "weight_decay_better": "another weight decay would do better than the one given",
    "best_weight_decay": "the weight decay is the best of all that the law covers, and what that is worth",
    "own_recipe": "the weight decay in a recipe of one's own",
    "overfitting_cost": "what repeated tokens cost",
    "more_compute_helps": "up to which compute more of it helps, by the law and with this recipe",
    "no_gain": "from which compute on the law expects no gain with this recipe",
    "measured_case": "what was measured where the law was tried closest to this question",
    "repetition_turns": "from which compute on more repetition stops paying",
    "exchange_rate": "what more data and more compute would buy",
    "flat_optimum": "sizes and epochs that are as good within the tolerance",
    "sharp_optimum": "nothing else is as good within the tolerance",
    "corpus": "the text that the laws were fitted on",
    "law_ends": "where the plan leaves the runs, how far forms are apart there, and the run that settles it",
    "forms_disagree": "forms that count in the average want quite different models",
    # warnings
    "interpolated": "the weight decay lies between two that were calibrated",
    "translated": "the weight decay of equal memory in another recipe is not sure to be the best there",
    "outside_memory": "AdamW's memory is outside of what was fitted",
    "end_of_range": "the best weight decay is at the end of those that the law covers",
    "fit": "what the fit behind the calibration warned of",
    "weight_decay_open": "no weight decay is probably enough the best",
    "outside_params": "the model size is outside of what was fitted",
    "outside_unique_tokens": "the unique tokens are outside of what was fitted",
    "outside_epochs": "the epochs are above what was fitted",
    "outside_members": "the members are outside of what was trained to calibrate their gain",
    "more_members": "the members are more than were trained",
    "serving_leaves_little": "serving takes so much that models of sizes that were fitted cannot be paid",
    "memory": "training does not fit into the memory of the accelerators",
    "vocabulary_unknown": "the calibration does not say its vocabulary",
    "vocabulary_differs": "the vocabulary is not that of the calibration",
    "no_shape": "no model shape has this size",
    "absurd_shape": "the shape is one that nobody trains",
    "above_guessing": "the predicted loss is above that of guessing",
}


class Remark(str):
    """A sentence, which is the string itself, and the code of what it is about (a key of `CODES`)."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, code: str, text: str) -> Remark:
        if code not in CODES:
            raise ValueError(f"no such code: {code!r}")
        made = super().__new__(cls, text)
        made.code = code
        return made

    def __reduce__(self) -> tuple[type[Remark], tuple[str, str]]:  # for copies and pickles
        return Remark, (self.code, str(self))

    def __repr__(self) -> str:
        return f"Remark({self.code!r}, {str(self)!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        read = core_schema.no_info_plain_validator_function(cls._read)
        as_json = core_schema.plain_serializer_function_ser_schema(cls._written, when_used="json")
        return core_schema.json_or_python_schema(read, read, serialization=as_json)

    @classmethod
    def _read(cls, value: Any) -> Remark:
        return value if isinstance(value, Remark) else cls(value["code"], value["text"])

    def _written(self) -> dict[str, str]:
        return {"code": self.code, "text": str(self)}
