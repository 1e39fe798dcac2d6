"""What strangers may try: each gets a sentence soon, the server stays small, and serves others meanwhile."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.ui_memory import family_of, occupied
from benchmarks.ui_visitor import ask, config_of, queued, upload
from planner import Calibration, InvalidInput, plan
from tests.calibration.ui.conftest import PATIENCE, Address, eventually, serving
from tests.places import ROOT

pytestmark = pytest.mark.slow
SOON = (
    2.0  # seconds that server and workers may spend on an attack, of a processor: clocks depend on neighbours
)
LARGEST = 2000.0  # megabytes, the server and its workers in all
NUMBERS = {"params": 15e6, "unique_tokens": 5e7, "epochs": 1.0, "weight_decay": 0.1, "loss": 4.2}


@pytest.fixture
def attacked(server: Address) -> Address:
    """The same server that others are served by."""
    return server


@pytest.fixture(scope="module")
def connections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server apart writes whom it and its workers connect to or look up."""
    log = tmp_path_factory.mktemp("audit") / "connections"
    log.touch()
    (log.parent / "sitecustomize.py").write_text(
        "import sys\n"
        "def hear(event, details):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.sendto'):\n"
        f"        open({str(log)!r}, 'a').write(repr((event, details[-1] if event != 'socket.getaddrinfo'"
        " else details[0])) + '\\n')\n"
        "sys.addaudithook(hear)\n"
    )
    return log


@pytest.fixture(scope="module")
def apart(connections: Path) -> Iterator[Address]:
    """A server of its own, which trusts a name, is listened to, and has a quota to use up."""
    paths = os.pathsep.join(filter(None, (str(connections.parent), os.environ.get("PYTHONPATH"))))
    with serving("--trust-host", "Planner.example", PYTHONPATH=paths) as address:
        yield address


class Watch:
    """The most that a server and its workers occupy while something happens, and that others are answered."""

    def __init__(self, server: Address) -> None:
        self.server, self.most, self.waits = server, 0.0, list[float]()
        self._config, self._done = config_of(server), False

    def __enter__(self) -> Watch:
        self._pool = ThreadPoolExecutor(2)
        self._futures = [self._pool.submit(self._weigh), self._pool.submit(self._visit)]
        return self

    def __exit__(self, *_: object) -> None:
        self._done = True
        for future in self._futures:
            future.result()
        self._pool.shutdown()
        assert self.most < LARGEST
        assert self.waits

    def _weigh(self) -> None:
        while not self._done:
            self.most = max(self.most, occupied(self.server.pid))
            time.sleep(0.1)

    def _visit(self) -> None:
        wanted = f'value="{plan("250M", "5e18").loss!r}"'
        while True:
            start = time.monotonic()
            assert wanted in ask(self.server, self._config, {})
            self.waits.append(time.monotonic() - start)
            if self._done:
                return


def event(server: str, name: str) -> dict[str, Any]:
    return next(d for d in config_of(server)["dependencies"] if d["api_name"] == name)


def inputs(server: str, name: str) -> list[Any]:
    """What the fields of the page hold that go with a file."""
    held = {item["id"]: item["props"].get("value") for item in config_of(server)["components"]}
    return [held[i] for i in event(server, name)["inputs"][1:]]


def check(server: str, file: dict[str, Any]) -> str:
    """What the page says of an uploaded table."""
    return str(queued(server, event(server, "check"), [file, *[""] * 8])[-1][0])


def soon(server: Address, what: Callable[[], Any]) -> Any:
    before = processor_seconds(server)
    found = what()
    assert processor_seconds(server) - before < SOON
    return found


def processor_seconds(server: Address) -> float:
    """Processor-seconds of a server and its workers, those that have ended included."""
    ticks = 0
    for pid in family_of(server.pid):
        with suppress(OSError):  # it ended meanwhile
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


# -- files --------------------------------------------------------------------------------------------------


def bomb(path: Path, column: str, rows: int = 20_000, size: int = 100_000) -> Path:
    """Two kilobytes that come to two gigabytes: one long text, repeated in every row."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {name: arrow.array(np.full(rows, value)) for name, value in NUMBERS.items()}
    columns["run"] = arrow.array([f"r{i}" for i in range(rows)])
    same = arrow.array(np.zeros(rows, dtype=np.int32))
    columns[column] = arrow.DictionaryArray.from_arrays(same, ["x" * size])
    parquet.write_table(arrow.table(columns), path, compression="zstd")
    return path


@pytest.mark.parametrize("column", ["run", "loss"])
def test_a_small_file_that_is_large_inside(attacked: Address, tmp_path: Path, column: str) -> None:
    file = upload(attacked, bomb(tmp_path / "bomb.parquet", column))
    said = soon(attacked, lambda: check(attacked, file))
    with Watch(attacked) as watched:
        assert check(attacked, file) == said
    assert "comes to more than 64 MB when it is read; a table of runs is smaller." in said
    assert watched.most < 1500


def test_texts_that_are_stored_as_differences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four kilobytes that come to 400 MB, of which no more than the limit is ever written out."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    from calibration.ui import small_parquet

    path, long = tmp_path / "differences.parquet", ["x" * 20_000 + str(i) for i in range(20_000)]
    how = {"use_dictionary": False, "compression": "zstd", "column_encoding": {"run": "DELTA_BYTE_ARRAY"}}
    parquet.write_table(arrow.table({"run": long, "loss": [4.2] * 20_000}), path, **how)
    assert path.stat().st_size < 10_000
    decoded, check = [], small_parquet._check_size
    monkeypatch.setattr(
        small_parquet, "_check_size", lambda size, name: (decoded.append(size), check(size, name))
    )
    with pytest.raises(InvalidInput, match="comes to more than 64 MB when it is read"):
        small_parquet.read_small(path)
    assert max(decoded) < 1.1 * small_parquet.LARGEST


def test_a_parquet_column_may_have_any_name_if_the_visitor_says_so(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from calibration.ui import file_worker

    frame = pd.DataFrame({**{name: [value] * 3 for name, value in NUMBERS.items()}, "run": list("abc")})
    frame.rename(columns={"loss": "how bad"}).to_parquet(tmp_path / "ours.parquet")
    request = {"path": str(tmp_path / "ours.parquet")}
    asked = file_worker.check(request, None)
    assert "how bad" in asked["columns"]
    assert "loss" in asked["error"]
    found = file_worker.check({**request, "columns": "loss=how bad"}, None)
    assert [row[-1] for row in found["preview"]] == ["4.2"] * 3


def test_columns_that_nobody_needs_are_not_read(attacked: Address, tmp_path: Path) -> None:
    file = upload(attacked, bomb(tmp_path / "notes.parquet", "notes"))
    with Watch(attacked):
        assert "The table can be read" in check(attacked, file)


def test_nested_and_damaged_parquet(attacked: Address, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({**{name: [value] for name, value in NUMBERS.items()}, "run": ["a"]})
    frame.assign(loss=[[4.2, 4.1]]).to_parquet(tmp_path / "nested.parquet")
    assert "a run table has one number or text per cell" in check(
        attacked, upload(attacked, tmp_path / "nested.parquet")
    )
    frame.to_parquet(tmp_path / "cut.parquet")
    content = bytearray((tmp_path / "cut.parquet").read_bytes())
    content[20:400] = b"\xff" * 380
    (tmp_path / "cut.parquet").write_bytes(content)
    said = check(attacked, upload(attacked, tmp_path / "cut.parquet"))
    assert "is not a readable Parquet file" in said or "more memory" in said


def test_checks_that_take_long_are_limited(attacked: Address, tmp_path: Path) -> None:
    """Whoever asks: three at a time."""
    lines = "run,params,unique_tokens,epochs,weight_decay,loss\n" + "a,15M,50M,1,0.1,4\n" * 19_000
    (tmp_path / "long.csv").write_text(lines)
    file = upload(attacked, tmp_path / "long.csv")
    most = 0

    def count() -> None:
        nonlocal most
        while not ended:
            most = max(most, len(workers(attacked)))
            time.sleep(0.05)

    ended = False
    with Watch(attacked), ThreadPoolExecutor(13) as pool:
        counting = pool.submit(count)
        calls = [pool.submit(check, attacked, file) for _ in range(12)]
        said = [call.result() for call in calls]
        ended = True
        counting.result()
    assert most <= 3 + 2  # three read, and one or two of those that wait for the next file
    refused = [one for one in said if "works on as many files as it can" in one]
    assert len(refused) < 12
    assert all("problems in" in one for one in said if one not in refused)


def workers(server: Address) -> list[int]:
    """The processes that read files."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words, status = path.read_bytes(), (path.parent / "stat").read_text()
        except OSError:
            continue
        if b"calibration.ui.file_worker" in words and int(status.rpartition(")")[2].split()[1]) == server.pid:
            found.append(int(path.parent.name))
    return found


# -- who asks -----------------------------------------------------------------------------------------------


def refused(request: urllib.request.Request) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=PATIENCE)
    with caught.value as reply:
        return reply.code, reply.read().decode()


def test_a_name_that_is_not_ours_is_refused(attacked: Address) -> None:
    port = attacked.rsplit(":", 1)[1]
    for name in (
        "evil.example",
        f"evil.example:{port}",
        "localhost.evil.example",
        "",
        "[::1",
        "evil@127.0.0.1.x",
    ):
        request = urllib.request.Request(f"{attacked}/config", headers={"Host": name})
        assert soon(attacked, lambda request=request: refused(request))[0] in (400, 421), name
    for name in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        urllib.request.urlopen(urllib.request.Request(f"{attacked}/config", headers={"Host": name})).close()


def test_names_can_be_trusted(apart: Address) -> None:
    for name in ("planner.example", "planner.example:443"):
        request = urllib.request.Request(f"{apart}/config", headers={"Host": name})
        urllib.request.urlopen(request, timeout=PATIENCE).close()
    assert refused(urllib.request.Request(apart, headers={"Host": "evil.example"}))[0] == 421


def test_other_sites_cannot_upload_or_ask(attacked: Address, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("run,params\n")
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "file://"):
        for path in ("upload", "queue/join", "run/check", "config"):
            headers = {"Origin": origin, "Content-Type": "application/json"}
            request = urllib.request.Request(f"{attacked}/gradio_api/{path}", b"{}", headers)
            status, said = soon(attacked, lambda request=request: refused(request))
            assert (status, said[:19]) == (403, "Only the page itsel")
    crossing = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert refused(urllib.request.Request(f"{attacked}/config", headers=crossing))[0] == 403
    assert upload(attacked, tmp_path / "a.csv", {"Origin": attacked})["path"]
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}  # a link on another site
    urllib.request.urlopen(urllib.request.Request(attacked, headers=followed), timeout=PATIENCE).close()


def test_sizes_are_limited_before_anything_is_read(attacked: Address) -> None:
    port = int(attacked.rsplit(":", 1)[1])
    for head, status in (
        (b"POST /gradio_api/queue/join HTTP/1.1\r\nContent-Length: 90000000\r\n", b"413"),
        (b"POST /gradio_api/upload HTTP/1.1\r\nContent-Length: 90000000\r\n", b"413"),
        (b"POST /gradio_api/upload HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", b"411"),
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(head + b"Host: localhost\r\n\r\n")
            assert soon(attacked, lambda connection=connection: connection.recv(100)).split()[1] == status


def test_nothing_is_fetched_for_a_visitor(attacked: Address) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = f"http://127.0.0.1:{listening.getsockname()[1]}/runs.csv"
        file = {"path": place, "url": place, "meta": {"_type": "gradio.FileData"}}
        body = {"data": [file, *[""] * 8], "session_hash": "s"}
        for route in ("run/check", "queue/join", "call/check", "api/check"):
            content = json.dumps(body).encode()
            request = urllib.request.Request(
                f"{attacked}/gradio_api/{route}", content, {"Content-Type": "application/json"}
            )
            assert refused(request)[0] in (400, 403)
        listening.settimeout(0.5)
        with pytest.raises(TimeoutError):
            listening.accept()


# -- files of the server ------------------------------------------------------------------------------------

SECRET = "the secret of the house"


def asking(server: str, name: str, **fields: Any) -> urllib.request.Request:
    """The question that an event of the page asks, with some of its inputs replaced by place."""
    known = event(server, name)
    values = ["" for _ in known["inputs"]]
    for place, value in fields.items():
        values[int(place.removeprefix("at"))] = value
    return posting(server, "queue/join", {"data": values, "fn_index": known["id"], "session_hash": "s"})


def posting(server: str, route: str, body: Any) -> urllib.request.Request:
    content = {"Content-Type": "application/json"}
    return urllib.request.Request(f"{server}/gradio_api/{route}", json.dumps(body).encode(), content)


def test_no_file_of_the_server_can_be_read(attacked: Address, tmp_path: Path) -> None:
    """By whatever route, in whatever input, however its path is written."""
    secret = tmp_path / "id_rsa"
    secret.write_text(SECRET)
    for name in ("link.csv", "link.svg"):
        (tmp_path / name).symlink_to(secret)
    (tmp_path / "mine.csv").write_text("run,params\n1,2\n")
    mine = upload(attacked, tmp_path / "mine.csv")
    folder = next(attacked.folder.glob("databound-ui-*"))
    (folder / "planted.csv").symlink_to(secret)
    paths = {
        "absolute": str(secret),
        "relative": os.path.relpath(secret, folder),
        "from an upload": f"{mine['path']}/../../../{os.path.relpath(secret, folder)}",
        "encoded": urllib.parse.quote(str(secret), safe=""),
        "symlink": str(tmp_path / "link.csv"),
        "picture": str(tmp_path / "link.svg"),
        "planted": "planted.csv",
        "address": f"file://{secret}",
        "unusual": f"/proc/self/root{secret}",
        "upload of another name": mine["path"].replace("mine", "yours"),
    }
    kind = {"meta": {"_type": "gradio.FileData"}}
    tried: dict[str, urllib.request.Request] = {}
    for how, path in paths.items():
        file = {"path": path, **kind}
        for route in ("check", "fit", "bring"):  # which do take a file, first
            tried[f"{route}, {how}"] = asking(attacked, route, at0=file)
        for route in ("update", "restore", "dragged", "step", "plan_with", "switch"):
            tried[f"{route}, {how}"] = asking(attacked, route, at0=file)
        for again in (path, urllib.parse.quote(path), urllib.parse.quote(path, safe="")):
            for route in ("file=", "file/"):
                address = f"{attacked}/gradio_api/{route}{again}"
                tried[f"{address}"] = urllib.request.Request(address)
        for route in ("run/update", "api/check", "call/check", "call/v2/fit", "component_server", "stream/x"):
            tried[f"{route}, {how}"] = posting(attacked, route, {"data": [file], "session_hash": "s"})
    file = {"path": str(secret), **kind}
    tried["among text"] = asking(attacked, "update", at3=[{"deep": file}])
    tried["my own upload in a text field"] = asking(attacked, "update", at0=mine)
    tried["a file in its name"] = asking(attacked, "check", at0={**mine, "orig_name": file})
    restore = event(attacked, "restore")["id"]
    twice = '{"fn_index": %d, "session_hash": "s", "data": [%s], "data": [%s]}'
    twice %= restore, '""', json.dumps(file)
    tried["said twice"] = urllib.request.Request(
        f"{attacked}/gradio_api/queue/join", twice.encode(), {"Content-Type": "application/json"}
    )
    batch = {"data": [[file]], "batched": True, "fn_index": restore, "session_hash": "s"}
    tried["in a batch"] = posting(attacked, "queue/join", batch)
    tried["deep link"] = urllib.request.Request(f"{attacked}/gradio_api/deep_link?session_hash=s")
    for route in ("proxy=http://127.0.0.1:1/x", "info", "openapi.json", "custom_component/1/client/x/y"):
        tried[route] = urllib.request.Request(f"{attacked}/gradio_api/{route}")
    assert len(tried) > 20
    for what, request in tried.items():
        status, said = refused(request)
        assert status in (400, 403, 404), what
        assert SECRET not in said, what
        assert str(attacked.folder) not in said, what
    (folder / "planted.csv").unlink()
    kept = [path for path in attacked.folder.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in path.read_bytes() for path in kept)
    for what in ("url", "meta", "orig", "size"):  # what else a file says of itself is not passed on
        nested = {**mine, what: {"path": str(secret), **kind}}
        assert SECRET not in str(queued(attacked, event(attacked, "check"), [nested, *[""] * 8])), what
    with urllib.request.urlopen(f"{attacked}/gradio_api/file={mine['path']}", timeout=PATIENCE) as reply:
        assert reply.read() == (tmp_path / "mine.csv").read_bytes()  # what was uploaded can be had again


@pytest.mark.parametrize(
    "changes",
    [
        {"fn_index": 99},
        {"fn_index": -1},
        {"fn_index": True},
        {"fn_index": 10**20},
        {"session_hash": "s" * 65},
        {"session_hash": "../s"},
        {"session_hash": None},
        {"trigger_id": 1e400},
        {"trigger_id": {}},
        {"data": {}},
        {"data": ["x" * 9000]},
        {"data": ["\ud800"]},
        {"data": ["x" * 70_000]},
    ],
    ids=str,
)
def test_what_the_page_never_sends_is_refused(attacked: Address, changes: dict[str, Any]) -> None:
    body = {"data": [""], "fn_index": event(attacked, "restore")["id"], "session_hash": "s"}
    status, said = refused(posting(attacked, "queue/join", body | changes))
    assert status in (400, 413)
    assert said.endswith(".")


def test_answers_that_nobody_reads_do_not_pile_up(attacked: Address) -> None:
    config = config_of(attacked)
    update = next(d for d in config["dependencies"] if d["api_name"] == "update")
    held = {item["id"]: item["props"].get("value") for item in config["components"]}
    body = {"data": [held[i] for i in update["inputs"]], "fn_index": update["id"], "session_hash": "unread"}
    request = posting(attacked, "queue/join", body)

    def unread() -> bool:
        try:
            urllib.request.urlopen(request, timeout=PATIENCE).close()
        except urllib.error.HTTPError as error:
            error.close()
            return error.code == 429
        return False

    with Watch(attacked):
        assert any(unread() for _ in range(400))


def test_what_was_announced_but_never_sent_uses_up_no_quota(attacked: Address, tmp_path: Path) -> None:
    port = int(attacked.rsplit(":", 1)[1])
    head = b"POST /gradio_api/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000000\r\n\r\n"
    for _ in range(12):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(head)
    (tmp_path / "a.csv").write_text("run,params\n")
    assert upload(attacked, tmp_path / "a.csv")["path"]


def test_long_texts_and_many_weight_decays_are_refused(attacked: Address, tmp_path: Path) -> None:
    known = json.loads(Calibration.load().model_dump_json(exclude_none=True)) | {"name": "x" * 10**6}
    (tmp_path / "long.json").write_text(json.dumps(known))
    file = upload(attacked, tmp_path / "long.json")
    said = str(queued(attacked, event(attacked, "bring"), [file, *inputs(attacked, "bring")]))
    assert "has more than 2,000 characters" in said
    lines = [f"a{i},15M,50M,1,{0.1 + i / 1e5},4" for i in range(2000)]
    header = "run,params,unique_tokens,epochs,weight_decay,loss"
    (tmp_path / "decays.csv").write_text("\n".join([header, *lines]))
    said = soon(attacked, lambda: check(attacked, upload(attacked, tmp_path / "decays.csv")))
    assert "2,000 weight decays" in said


def test_a_json_table_on_one_line_is_read(attacked: Address, tmp_path: Path, runs: pd.DataFrame) -> None:
    runs.to_json(tmp_path / "runs.json", orient="records")
    assert "The table can be read" in check(attacked, upload(attacked, tmp_path / "runs.json"))


WITHOUT_THE_GATE = """
import pathlib, sys
from fastapi.testclient import TestClient
from calibration.ui.page import Page
from calibration.ui.server import application
page = Page()
client = TestClient(application(page))
restore = next(number for number, fn in page.blocks.fns.items() if fn.name == "restore")
file = {"path": sys.argv[1], "meta": {"_type": "gradio.FileData"}}
for page.blocks.has_launched in (page.blocks.has_launched, False):
    client.post("/gradio_api/run/predict", json={"data": [file], "fn_index": restore, "session_hash": "s"})
    print(sum(path.is_file() for path in pathlib.Path("files").rglob("*")))
page.close()
"""


def test_gradio_checks_paths_too(tmp_path: Path) -> None:
    """Without what stands before the page, a file that was not uploaded is not copied either; it would be if
    the page did not ask for that.
    """
    pytest.importorskip("gradio")
    secret, folder = tmp_path / "id_rsa", tmp_path / "server"
    secret.write_text(SECRET)
    folder.mkdir()
    around = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_THE_GATE, str(secret)]
    told = subprocess.run(command, cwd=folder, env=around, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["0", "1"]


def hostile(number: int) -> str:
    """A calibration with what nobody needs: objects in a field that nobody knows, or more than is kept."""
    known = json.loads(Calibration.load().model_dump_json(exclude_none=True)) | {"name": f"hostile {number}"}
    if number % 5 < 3:  # 7 or 14 MB
        objects = ",".join(["{}"] * (4_700_000 if number % 5 == 2 else 2_300_000))
        return f'{json.dumps(known)[:-1]}, "unknown": [{objects}]}}'
    for setting in known["settings"]:
        laws = {
            form: {name: [value] * 4000 for name, value in law["parameters"].items()}
            for form, law in setting["laws"].items()
        }
        setting["ensemble"] = {"method": "drawn", "laws": laws}
        setting["method"] = {"notes": [{}] * 10_000}
    return json.dumps(known)


def test_fifty_hostile_calibrations(tmp_path: Path) -> None:
    """What is kept of them is bounded, whoever brings them, and others are served meanwhile."""
    said = ""
    with serving() as address:
        bring, rest = event(address, "bring"), inputs(address, "bring")
        with Watch(address):
            for number in range(50):
                (tmp_path / "hostile.json").write_text(hostile(number))
                file = upload(address, tmp_path / "hostile.json", source=f"127.0.0.{2 + number // 5}")
                said += str(queued(address, bring, [file, *rest]))
        assert occupied(address.pid) < 700
    assert said.count("holds more than 500,000 values") == 2 * 30  # each is answered twice: see `Page.show`


# -- what is told -------------------------------------------------------------------------------------------


def test_replies_tell_nothing_of_the_machine(attacked: Address, tmp_path: Path, runs: pd.DataFrame) -> None:
    (tmp_path / "a.csv").write_text("run,params\n1,2\n")
    file = upload(attacked, tmp_path / "a.csv")
    assert file["path"].startswith("files/")
    told = json.dumps(config_of(attacked)) + check(attacked, file)
    (tmp_path / "a.json").write_text("{}")
    given = upload(attacked, tmp_path / "a.json")
    told += json.dumps(queued(attacked, event(attacked, "bring"), [given, *inputs(attacked, "bring")]))
    runs.to_csv(tmp_path / "runs.csv", index=False)
    file = upload(attacked, tmp_path / "runs.csv")
    fitted = queued(attacked, event(attacked, "fit"), [file, "mine", "", "", 0, *[""] * 6])
    assert "is fitted" in str(fitted[-1])
    told += json.dumps(fitted)
    with urllib.request.urlopen(attacked, timeout=PATIENCE) as page:
        told += page.read().decode() + str(page.headers)
    for secret in (str(attacked.folder), str(Path.home()), str(Path(__file__).parents[3])):
        assert secret not in told
    for path in ("/docs", "/redoc", "/openapi.json"):  # no such page, or the page itself
        try:
            with urllib.request.urlopen(attacked + path, timeout=PATIENCE) as page:
                assert not re.search("swagger|redoc|openapi", page.read().decode())
        except urllib.error.HTTPError as error:
            assert error.code in (403, 404)
            error.close()


def test_every_reply_tells_the_browser_what_the_page_may_do(attacked: Address) -> None:
    for path in ("/", "/config", "/theme.css"):
        with urllib.request.urlopen(attacked + path, timeout=PATIENCE) as reply:
            policy = reply.headers["content-security-policy"]
            assert "frame-ancestors 'none'" in policy
            assert "default-src 'self'" in policy
            assert "http" not in policy  # nobody else's scripts, pictures or connections
            assert reply.headers["x-frame-options"] == "DENY"
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert "server" not in reply.headers


# -- many, and slow -----------------------------------------------------------------------------------------


def test_fifty_visitors_with_ten_requests_each(attacked: Address) -> None:
    config = config_of(attacked)
    budgets = [f"{100 + 2 * i}M" for i in range(50)]
    wanted = {ud: f'value="{plan(ud, "5e18").loss!r}"' for ud in budgets}

    def visit(ud: str) -> None:
        for _ in range(10):
            assert wanted[ud] in ask(attacked, config, {"ud": ud})

    with Watch(attacked), ThreadPoolExecutor(50) as pool:
        list(pool.map(visit, budgets))


def test_connections_that_wait_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing, half a head, half a body; but an answer that takes longer may be waited for."""
    import asyncio
    import threading

    import uvicorn

    server = pytest.importorskip("calibration.ui.server")
    monkeypatch.setattr(server, "REQUEST_SECONDS", 2.0)

    async def slowly(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        if scope["method"] == "POST":
            while (await receive()).get("more_body"):
                pass
        await asyncio.sleep(3.0)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    how: dict[str, Any] = {"ws": "none", "lifespan": "off", "log_level": "error"}
    running = uvicorn.Server(uvicorn.Config(slowly, port=0, http=server.Impatient, **how))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        eventually(lambda: running.started)
        port = running.servers[0].sockets[0].getsockname()[1]
        whole = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        halves = (
            b"",
            b"GET / HTTP/1.1\r\nHost:",
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf",
        )
        with ExitStack() as stack:
            answers = []
            for sent in (whole, *halves):
                connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
                stack.enter_context(connection).sendall(sent)
                answers.append(partial(connection.recv, 100))
            waited, *closed = answers
            assert all(answer() == b"" for answer in closed)  # by the server, without a word
            assert b"200 OK" in waited()  # its request had arrived: it may wait for the answer
    finally:
        running.should_exit = True
        thread.join()


def test_no_request_leaves_the_machine(
    apart: Address, connections: Path, tmp_path: Path, runs: pd.DataFrame
) -> None:
    """Everything that the server and its workers connect to or look up, in a visit from upload to fit."""
    runs.to_csv(tmp_path / "ours.csv", index=False)
    ask(apart, config_of(apart), {"ud": "300M"})
    file = upload(apart, tmp_path / "ours.csv")
    assert "The table can be read" in check(apart, file)
    fitted = queued(apart, event(apart, "fit"), [file, "mine", "", "", 0, *[""] * 6])
    assert "is fitted" in str(fitted[-1])
    told = connections.read_text().splitlines()
    for line in told:
        assert "127.0.0.1" in line or "localhost" in line or socket.gethostname() in line, line


def test_uploads_have_a_quota(apart: Address, tmp_path: Path) -> None:
    """The last one here: nobody uploads any more."""
    (tmp_path / "large.csv").write_bytes(b"x" * (15 * 2**20))
    with Watch(apart):
        for _ in range(6):
            upload(apart, tmp_path / "large.csv")
        with pytest.raises(urllib.error.HTTPError) as caught:
            upload(apart, tmp_path / "large.csv")
        with caught.value as reply:
            assert reply.code == 429
            assert "uploaded within half an hour" in reply.read().decode()
