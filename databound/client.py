"""A client of `planner serve`: the calls of Python, answered by a server with the same models.

client = databound.Client("http://127.0.0.1:7860")
client.plan(ud="250M", flops="5e18").params
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import numpy as np

from planner import plans, results
from planner.calibration import Calibration
from planner.inputs import InvalidInput

if TYPE_CHECKING:
    from pandas import DataFrame


class ServiceError(RuntimeError):
    """The server cannot be reached, or has no time; `status` is that of its reply, None where it has none."""

    def __init__(self, sentence: str, status: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status


class Client:
    """Asks a server at an address; bad input raises InvalidInput, as the calls of Python do.

    A `calibration` is the name of one that ships, the id of one that was fitted there, a Calibration, or a
    file of yours, which is sent along.
    """

    def __init__(self, url: str, *, timeout: float = 120.0, headers: Mapping[str, str] | None = None) -> None:
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise InvalidInput(f"must be an address such as http://127.0.0.1:7860; got {url!r}.", field="url")
        self.url, self.timeout, self.headers = url.rstrip("/"), timeout, dict(headers or {})

    def plan(self, *args: Any, **given: Any) -> results.Plan:
        """`planner.plan`, asked of the server."""
        return results.Plan.model_validate_json(self._call(plans.plan, args, given))

    def compare(self, *args: Any, **given: Any) -> results.Comparison:
        """`planner.compare`, asked of the server."""
        return results.Comparison.model_validate_json(self._call(plans.compare, args, given))

    def crossover(self, *args: Any, **given: Any) -> results.Crossover:
        """`planner.crossover`, asked of the server."""
        return results.Crossover.model_validate_json(self._call(plans.crossover, args, given))

    def frontier(self, *args: Any, **given: Any) -> results.Frontier:
        """`planner.frontier`, asked of the server."""
        return results.Frontier(**_arrays(self._call(plans.frontier, args, given)))

    def predict(self, *args: Any, **given: Any) -> results.Prediction | results.Predictions:
        """`planner.predict`, asked of the server: one prediction, or those of lists."""
        answer = self._call(plans.predict, args, given)
        if isinstance(json.loads(answer)["loss"], list):
            return results.Predictions(**_arrays(answer))
        return results.Prediction.model_validate_json(answer)

    def fit(self, runs: str | os.PathLike[str] | bytes | DataFrame, **options: Any) -> Calibration:
        """The calibration that the server fits to a run table: a file, its bytes, or a DataFrame. Options are
        those of `POST /v1/fit`, such as `drop_missing=True` and `name`. What is wrong with the table is in
        `problems` of the exception: row (0: the whole column), column, value and reason.
        """
        if isinstance(runs, bytes):
            content = runs
        elif isinstance(runs, str | os.PathLike):
            content = Path(runs).read_bytes()
            options = {"file": Path(runs).name, **options}
        else:
            content = runs.to_csv(index=False).encode()
        given = {name: str(value) for name, value in options.items() if value is not None}
        answer = self._post(f"/v1/fit?{urlencode(given)}", content, "application/octet-stream")
        return Calibration.model_validate(json.loads(answer)["calibration"])

    def calibrations(self) -> list[dict[str, Any]]:
        """The calibrations that can be asked by name."""
        found: list[dict[str, Any]] = json.loads(self._ask(Request(f"{self.url}/v1/calibrations")))
        return found

    # -- over HTTP

    def _call(self, call: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> bytes:
        """The answer to what Python would call with these arguments."""
        arguments = dict(inspect.signature(call).bind(*args, **given).arguments)
        source = arguments.get("calibration")
        if isinstance(source, os.PathLike) or (isinstance(source, str) and source.endswith(".json")):
            source = Calibration.load(source)
        if isinstance(source, Calibration):
            arguments["calibration"] = source.model_dump(mode="json", exclude_none=True)
        body = json.dumps(arguments, default=_plain).encode()
        return self._post(f"/v1/{call.__name__}", body, "application/json")

    def _post(self, path: str, body: bytes, kind: str) -> bytes:
        return self._ask(Request(f"{self.url}{path}", body, {"Content-Type": kind}))

    def _ask(self, request: Request) -> bytes:
        for name, value in self.headers.items():
            request.add_header(name, value)
        try:
            with urlopen(request, timeout=self.timeout) as reply:
                answer: bytes = reply.read()
                return answer
        except HTTPError as error:
            with error:
                raise _refused(error.code, error.read()) from None
        except (OSError, HTTPException) as error:
            raise ServiceError(f"{self.url} does not answer: {error}.") from None


class _Told(InvalidInput):
    """What a server said, which names the argument at fault itself; of a table also what is wrong with it."""

    def __init__(self, sentence: str, field: str | None, problems: list[dict[str, Any]]) -> None:
        super().__init__(sentence, field=field)
        self.problems = problems

    def __str__(self) -> str:
        return str(self.args[0])


def _refused(status: int, body: bytes) -> Exception:
    try:
        told = json.loads(body)
        sentence, field, problems = str(told["detail"]), told.get("field"), told.get("problems", [])
    except (ValueError, KeyError, TypeError, AttributeError):
        sentence, field, problems = f"the server answered with status {status}.", None, []
    if status != 422:
        return ServiceError(sentence, status)
    if problems and problems[0]["reason"] not in sentence:
        first = problems[0]
        where = f"row {first['row']}, {first['column']}: " if first["row"] else ""
        sentence += f", such as: {where}{first['value']} {first['reason']}.".replace(":  ", ": ")
    return _Told(sentence, field, problems)


def _plain(value: Any) -> Any:
    """Arrays and numpy's numbers as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise InvalidInput(f"cannot be sent to a server: {type(value).__name__}.")


def _arrays(answer: bytes) -> dict[str, Any]:
    """The fields of an answer whose lists are arrays; null is not a number."""
    found: dict[str, Any] = json.loads(answer)
    for name, value in found.items():
        if isinstance(value, list):
            found[name] = np.array(value, dtype=bool if name == "refused" else float)
    return found
