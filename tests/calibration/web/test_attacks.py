"""What strangers may try: each gets a sentence soon, the server stays small, and serves others meanwhile."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.service_visitor import Reply, ask, family_of, occupied
from planner import Calibration, plan
from tests.calibration.web.conftest import PATIENCE, Address, eventually, serving
from tests.places import ROOT

pytest.importorskip("fastapi")
pytestmark = pytest.mark.slow
# Processor-seconds that server and workers may spend on an attack, with a worker for the next file: clocks
# depend on neighbours.
SOON = 4.0
LARGEST = 1500.0  # megabytes, the server and its workers in all
QUESTION = {"ud": "250M", "flops": "5e18"}
HEADER = "run,params,unique_tokens,epochs,weight_decay,loss"
NUMBERS = {"params": 15e6, "unique_tokens": 5e7, "epochs": 1.0, "weight_decay": 0.1, "loss": 4.2}
SECRET = "the secret of the house"


@pytest.fixture(scope="module")
def attacked() -> Iterator[Address]:
    with serving("--trust-host", "Planner.example") as address:
        yield address


class Watch:
    """The most that a server and its workers occupy while something happens, and that others are answered."""

    def __init__(self, server: Address) -> None:
        self.server, self.most, self.waits, self._done = server, 0.0, list[float](), False

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
            time.sleep(0.3)

    def _visit(self) -> None:
        wanted = plan(**QUESTION).loss
        while True:
            start = time.monotonic()
            reply = ask(self.server, "/v1/plan", QUESTION, source="127.0.0.99")
            assert reply.json()["loss"] == wanted
            self.waits.append(time.monotonic() - start)
            if self._done:
                return
            time.sleep(0.1)


def soon(server: Address, what: Callable[[], Reply]) -> Reply:
    """The reply to an attack, which cost little: a sentence, and no word of the machine."""
    before = processor_seconds(server)
    reply = what()
    assert processor_seconds(server) - before < SOON
    assert reply.status != 500
    if reply.status >= 400:
        assert reply.json()["detail"].rstrip(")").endswith((".", "run", "problems"))
        for told in ("Traceback", str(server.folder), str(Path.home()), str(ROOT), SECRET):
            assert told not in reply.body.decode()
    return reply


def processor_seconds(server: Address) -> float:
    """Processor-seconds of a server and its workers, those that have ended included."""
    ticks = 0
    for pid in family_of(server.pid):
        with suppress(OSError):  # it ended meanwhile
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def raw(server: str, sent: bytes, source: str = "127.0.0.1") -> bytes:
    """What comes back on a connection of one's own."""
    place = ("127.0.0.1", int(server.rsplit(":", 1)[1]))
    with socket.create_connection(place, timeout=PATIENCE, source_address=(source, 0)) as connection:
        connection.sendall(sent)
        return connection.recv(4096)


# -- who asks -----------------------------------------------------------------------------------------------


def test_names_that_are_not_ours_are_refused(attacked: Address) -> None:
    port = attacked.rsplit(":", 1)[1]
    strange = (
        "evil.example",
        f"evil.example:{port}",
        "localhost.evil.example",
        "",
        "[::1",
        "evil@127.0.0.1.x",
    )
    for name in strange:
        for path in ("/", "/healthz", "/v1/calibrations"):
            reply = soon(attacked, lambda p=path, n=name: ask(attacked, p, headers={"Host": n}))
            assert reply.status in (400, 421), name
    for name in (
        f"localhost:{port}",
        f"127.0.0.1:{port}",
        f"[::1]:{port}",
        "planner.example",
        "PLANNER.example:1",
    ):
        assert ask(attacked, "/healthz", headers={"Host": name}).status == 200


def test_other_sites_cannot_ask(attacked: Address) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "file://", "http://[::1"):
        for path in ("/v1/plan", "/v1/fit", "/v1/calibrations", "/page/answer"):
            reply = soon(attacked, lambda p=path, o=origin: ask(attacked, p, QUESTION, headers={"Origin": o}))
            assert (reply.status, reply.json()["detail"][:12]) == (403, "another site")
    crossing = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert ask(attacked, "/v1/calibrations", headers=crossing).status == 403
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}  # a link on another site
    assert ask(attacked, "/", headers=followed).status == 200
    assert ask(attacked, "/v1/plan", QUESTION, headers={"Origin": attacked}).status == 200


def test_addresses_that_a_visitor_gives_itself_count_only_from_a_proxy(server: Address) -> None:
    """Without --trust-host nobody is whom a header says: the rate is that of the connection."""
    told = {
        ask(
            server, "/healthz", headers={"X-Forwarded-For": f"10.0.{i // 200}.{i % 200}"}, source="127.0.0.7"
        ).status
        for i in range(900)
    }
    assert told == {200, 429}


def test_every_reply_tells_the_browser_what_the_page_may_do(attacked: Address) -> None:
    for path in ("/", "/docs", "/v1/calibrations", "/nothing", "/openapi.json"):
        headers = ask(attacked, path).headers
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "default-src 'self'" in policy
        assert "http" not in policy  # nobody else's scripts, pictures or connections
        assert "script-src" not in policy  # none but our own files, and none inline
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert not {"server", "set-cookie", "access-control-allow-origin"} & headers.keys()


# -- files of the server ------------------------------------------------------------------------------------


def test_no_file_of_the_server_can_be_had(attacked: Address, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text(SECRET)
    paths = (
        str(secret), f"file://{secret}", f"../../..{secret}", "/proc/self/environ", "/etc/passwd",
        "~/.ssh/id_rsa", "..\\..\\x", str(secret).replace("/", "%2f"), f"{secret}\0.json",
        "wandb:entity/project",
    )  # fmt: skip
    for path in paths:
        for name in ("calibration", "ud", "gpu", "law"):
            body = {**QUESTION, name: path}
            assert soon(attacked, lambda b=body: ask(attacked, "/v1/plan", b)).status == 422
        for given in (path, {"path": path}, {"$ref": path}, {"url": path}):
            body = {**QUESTION, "calibration": given}
            assert soon(attacked, lambda b=body: ask(attacked, "/v1/plan", b)).status == 422
        reply = soon(attacked, lambda p=path: ask(attacked, "/v1/fit", p.encode()))
        assert reply.status == 422
    link = socket.create_server(("127.0.0.1", 0))
    with link:
        place = f"http://127.0.0.1:{link.getsockname()[1]}/runs.csv"
        for body in ({**QUESTION, "calibration": place}, {**QUESTION, "calibration": {"url": place}}):
            assert ask(attacked, "/v1/plan", body).status == 422
        assert ask(attacked, "/v1/check", place.encode()).json()["detail"]
        link.settimeout(0.5)
        with pytest.raises(TimeoutError):  # nothing is fetched for a visitor
            link.accept()


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py", "/static/..%2fserver.py", "/static/%2e%2e/server.py", "/static//etc/passwd",
        "/static/....//server.py", "/static/..%5cserver.py", "//etc/passwd", "/%00", "/static/page.py",
        "/static/%252e%252e/server.py", "/../../../../etc/passwd", "/static/", "/fitted/x/../../y",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_static_files(attacked: Address, path: str) -> None:
    reply = soon(attacked, lambda: ask(attacked, path))
    assert reply.status in (400, 404, 405)


# -- bodies -------------------------------------------------------------------------------------------------


def test_sizes_are_limited_before_anything_is_read(attacked: Address) -> None:
    for head, status in (
        (b"POST /v1/plan HTTP/1.1\r\nContent-Length: 90000000\r\n", b"413"),
        (b"POST /v1/fit HTTP/1.1\r\nContent-Length: 90000000\r\n", b"413"),
        (b"POST /page/answer HTTP/1.1\r\nContent-Length: 70000\r\n", b"413"),
        (b"PUT /nothing HTTP/1.1\r\nContent-Length: 70000\r\n", b"413"),
        (b"POST /v1/fit HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", b"411"),
        (b"POST /v1/plan HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"411"),
        (b"GET /healthz HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"411"),
        (b"POST /v1/fit HTTP/1.1\r\nContent-Length: -1\r\n", b"400"),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n", b"414"),
        (b"nonsense\r\n", b"400"),
    ):
        assert raw(attacked, head + b"Host: localhost\r\n\r\n").split()[1] == status, head[:60]


NESTED = b'{"ud": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
BODIES: dict[str, bytes] = {
    "nested lists": NESTED,
    "nested objects": b'{"calibration":' * 20_000 + b"1" + b"}" * 20_000,
    "many values": b'{"ud": [' + b"1," * 500_000 + b"1]}",
    "many objects": b'{"ud": 1, "calibration": {"x": [' + b"{}," * 400_000 + b"{}]}}",
    "a long number": b'{"ud": ' + b"9" * 1_000_000 + b"}",
    "a long power": b'{"ud": 1e' + b"9" * 100_000 + b', "flops": 1}',
    "a long text": b'{"ud": "' + b"9" * 1_900_000 + b'"}',
    "a long name": b'{"' + b"u" * 1_900_000 + b'": 1}',
    "the same name again": b'{"ud": 1, "ud": {"path": "/etc/passwd"}}',
    "no text": bytes(range(256)) * 100,
    "half a character": b'{"ud": "\\ud800", "flops": "5e18"}',
    "zeros": b"\0" * 100_000,
    "markup": b'{"ud": "<script>alert(1)</script>", "flops": 1}',
    "a template": b'{"ud": "{{7*7}}${7*7}%s%n", "flops": 1}',
    "a list of lists": b'{"ud": [[1]], "flops": 1}',
    "slow to match": b'{"ud": "' + b"1," * 49 + b'", "flops": 1}',
}


@pytest.mark.parametrize("what", BODIES)
@pytest.mark.parametrize("call", ["plan", "frontier", "predict"])
def test_strange_bodies_get_a_sentence(attacked: Address, call: str, what: str) -> None:
    kind = {"Content-Type": "application/json"}
    reply = soon(attacked, lambda: ask(attacked, f"/v1/{call}", BODIES[what], headers=kind))
    assert reply.status in (400, 413, 422)
    assert len(reply.body) < 1000
    assert reply.headers["content-type"] == "application/json"  # markup of a visitor is never a page


def bomb() -> bytes:
    """Two kilobytes that come to two gigabytes: one long text, repeated in every row."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {name: arrow.array(np.full(20_000, value)) for name, value in NUMBERS.items()}
    same = arrow.array(np.zeros(20_000, dtype=np.int32))
    columns["run"] = arrow.DictionaryArray.from_arrays(same, ["x" * 100_000])
    file = io.BytesIO()
    parquet.write_table(arrow.table(columns), file, compression="zstd")
    return file.getvalue()


def differences() -> bytes:
    """Four kilobytes that come to 400 MB, stored as what differs from the text before."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    long = ["x" * 20_000 + str(i) for i in range(20_000)]
    how = {"use_dictionary": False, "compression": "zstd", "column_encoding": {"run": "DELTA_BYTE_ARRAY"}}
    file = io.BytesIO()
    parquet.write_table(arrow.table({"run": long, "loss": [4.2] * 20_000}), file, **how)
    return file.getvalue()


def nested() -> bytes:
    file = io.BytesIO()
    pd.DataFrame(
        {**{name: [value] for name, value in NUMBERS.items()}, "run": ["a"], "loss": [[4.2]]}
    ).to_parquet(file)
    return file.getvalue()


def excel() -> bytes:
    return b"PK\x03\x04" + zlib.compress(b"0" * 10**7)


TABLES: dict[str, Callable[[], bytes]] = {
    "a Parquet file that is large inside": bomb,
    "texts as differences": differences,
    "nested Parquet": nested,
    "damaged Parquet": lambda: b"PAR1" + b"\xff" * 5000 + b"PAR1",
    "gzip that is large inside": lambda: gzip.compress(b"," * 10**8),
    "a zip file": excel,
    "binary": lambda: bytes(range(256)) * 400,
    "wide": lambda: b"a," * 400_000 + b"\n" + b"1," * 400_000,
    "long": lambda: f"{HEADER}\n".encode() + b"=1+1,x,50M,1,0.1,4\n" * 200_000,
    "an open quote": lambda: b'run,params\n"' + b"x" * 3_000_000,
    "nested JSON": lambda: b"[" * 1_000_000,
    "many weight decays": lambda: "\n".join(
        [HEADER, *(f"a{i},15M,50M,1,{0.1 + i / 1e5},4" for i in range(2000))]
    ).encode(),
    "empty": lambda: b" ",
    "markup": lambda: f"{HEADER}\n<img src=x onerror=alert(1)>,<b>,50M,1,0.1,4\n".encode(),
}  # fmt: skip


@pytest.mark.parametrize("what", TABLES)
def test_strange_tables_get_a_sentence(attacked: Address, what: str) -> None:
    source = f"127.0.1.{1 + list(TABLES).index(what)}"
    with Watch(attacked):
        reply = soon(attacked, lambda: ask(attacked, "/v1/fit", TABLES[what](), source=source))
    assert reply.status == 422, reply.body
    assert reply.headers["content-type"] == "application/json"


def hostile(number: int) -> bytes:
    """A calibration with what nobody needs: objects in a field that nobody knows, or more than is kept."""
    known = json.loads(SHIPPED) | {"name": f"hostile {number}"}
    if number % 5 < 3:  # 7 or 14 MB
        objects = ",".join(["{}"] * (4_700_000 if number % 5 == 2 else 2_300_000))
        return f'{json.dumps(known)[:-1]}, "unknown": [{objects}]}}'.encode()
    for setting in known["settings"]:
        laws = {
            form: {name: [value] * 4000 for name, value in law["parameters"].items()}
            for form, law in setting["laws"].items()
        }
        setting["draws"] = {"method": "drawn", "laws": laws}
        setting["method"] = {"notes": [{}] * 10_000}
    return json.dumps(known).encode()


SHIPPED = Calibration.load().model_dump_json(exclude_none=True)
CALIBRATIONS: dict[str, bytes] = {
    "nested": b"[" * 300_000,
    "digits": b'{"name": ' + b"9" * 20_000 + b"}",
    "binary": struct.pack("<1000d", *range(1000)),
    "wrong": b'{"name": "<script>alert(1)</script>", "settings": []}',
    "a long name": SHIPPED.replace('"fineweb-llama2"', f'"{"x" * 10**6}"', 1).encode(),
    "not finite": SHIPPED.replace("2.0422", "1e999").encode(),
    "million": b'{"name": "heavy", "settings": [' + b"1.0," * 1_000_000 + b"1]}",
}  # fmt: skip


@pytest.mark.parametrize("what", CALIBRATIONS)
def test_strange_calibrations_get_a_sentence(attacked: Address, what: str) -> None:
    source = f"127.0.2.{1 + list(CALIBRATIONS).index(what)}"
    reply = soon(attacked, lambda: ask(attacked, "/v1/calibrations", CALIBRATIONS[what], source=source))
    assert reply.status == 422
    inline = b'{"ud": "250M", "flops": "5e18", "calibration": ' + CALIBRATIONS[what] + b"}"
    kind = {"Content-Type": "application/json"}
    reply = soon(attacked, lambda: ask(attacked, "/v1/plan", inline, headers=kind, source=source))
    assert reply.status in (400, 413, 422)


def test_fifty_hostile_calibrations() -> None:
    """What is kept of them is bounded, whoever brings them, and others are served meanwhile."""
    with serving() as address:
        with Watch(address):
            for number in range(50):
                source = f"127.0.3.{2 + number // 5}"
                reply = ask(address, "/v1/calibrations", hostile(number), source=source)
                assert reply.status == (200 if number % 5 > 2 else 422), reply.body
        assert occupied(address.pid) < 700


# -- many, and slow -----------------------------------------------------------------------------------------


def test_slow_and_silent_connections_take_no_place_of_others() -> None:
    """One address opens as many as it can, and says nothing, or half a request."""
    half = b"POST /v1/fit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf"
    after_another = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + half
    halves = (b"", b"GET / HTTP/1.1\r\nHost:", half)
    with ExitStack() as stack, serving() as address:
        place = ("127.0.0.1", int(address.rsplit(":", 1)[1]))
        opened = []
        for i in range(100):
            connection = socket.create_connection(place, timeout=PATIENCE, source_address=("127.0.4.1", 0))
            stack.enter_context(connection).sendall(halves[i % 3])
            opened.append(connection)
        start = time.monotonic()
        refused = opened[-1].recv(4096)
        assert refused.startswith(b"HTTP/1.1 429")
        assert b"Retry-After" in refused
        with Watch(address):
            assert ask(address, "/healthz", source="127.0.4.2").status == 200
        late = [connection.recv(4096) for connection in opened[:3]]  # closed, with a word, when time is up
        assert time.monotonic() - start < PATIENCE
        assert all(told.startswith(b"HTTP/1.1 408") or told == b"" for told in late)
        with socket.create_connection(place, timeout=PATIENCE) as connection:
            connection.sendall(after_another)
            while connection.recv(4096):
                pass


def test_answers_that_are_not_read_are_given_up(attacked: Address) -> None:
    place = ("127.0.0.1", int(attacked.rsplit(":", 1)[1]))
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(40):
            connection = socket.create_connection(place, timeout=PATIENCE, source_address=("127.0.4.3", 0))
            stack.enter_context(connection)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            with suppress(OSError):
                connection.sendall(request * 50)
        with Watch(attacked):
            time.sleep(1.0)


def test_one_visitor_has_its_share(attacked: Address) -> None:
    """However much it asks at once: the rest is told when to return, and others are answered."""
    heavy = {"ud": [f"{100 + i}M" for i in range(10)], "flops": "1e19"}
    with Watch(attacked), ThreadPoolExecutor(60) as pool:
        calls = [pool.submit(ask, attacked, "/v1/frontier", heavy, source="127.0.4.4") for _ in range(120)]
        said = [call.result() for call in calls]
    assert {reply.status for reply in said} <= {200, 429, 503}
    assert any(reply.status == 200 for reply in said)
    refused = [reply for reply in said if reply.status != 200]
    assert refused
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)


def test_one_visitor_cannot_take_both_places_for_fits(attacked: Address, runs: pd.DataFrame) -> None:
    table = runs.to_csv(index=False).encode()
    with ThreadPoolExecutor(4) as pool:
        calls = [
            pool.submit(ask, attacked, "/v1/fit?refits=300", table, source="127.0.4.5") for _ in range(3)
        ]
        eventually(lambda: len(workers(attacked)) >= 1)
        other = ask(attacked, "/v1/fit?refits=0", table, source="127.0.4.6")
        said = sorted(call.result().status for call in calls)
    assert other.status == 200
    assert said == [200, 429, 429]


def test_a_fit_that_nobody_waits_for_ends(attacked: Address, runs: pd.DataFrame) -> None:
    table = runs.to_csv(index=False).encode()
    place = ("127.0.0.1", int(attacked.rsplit(":", 1)[1]))
    head = b"POST /v1/fit?refits=2000 HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(table)
    with socket.create_connection(place, timeout=PATIENCE, source_address=("127.0.4.7", 0)) as connection:
        connection.sendall(head + table)
        eventually(lambda: any(busy(pid) for pid in workers(attacked)))
    eventually(lambda: not any(busy(pid) for pid in workers(attacked)))
    again = "/v1/fit?refits=0"  # its place is free
    eventually(lambda: ask(attacked, again, table, source="127.0.4.7").status == 200)


def workers(server: Address) -> list[int]:
    """The processes that read files."""
    found = []
    for pid in family_of(server.pid) - {server.pid}:
        with suppress(OSError):
            if b"calibration.web.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def busy(pid: int) -> bool:
    """Whether a worker has begun: only then its memory is limited."""
    with suppress(OSError):
        return "Max address space      unlimited" not in Path(f"/proc/{pid}/limits").read_text().replace(
            "Max address space         ", "Max address space      "
        )
    return False


def test_uploads_have_a_quota(attacked: Address) -> None:
    large = b"x" * (15 * 2**20)
    said = [ask(attacked, "/v1/check", large, source="127.0.4.8").status for _ in range(7)]
    assert said[:6] == [200] * 6
    assert said[6] == 429
    assert ask(attacked, "/v1/check", b"run\n", source="127.0.4.9").status == 200
    for _ in range(12):  # what was announced but never sent uses up no quota
        head = b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000000\r\n\r\n"
        place = ("127.0.0.1", int(attacked.rsplit(":", 1)[1]))
        socket.create_connection(place, timeout=PATIENCE, source_address=("127.0.4.10", 0)).close()
        with socket.create_connection(
            place, timeout=PATIENCE, source_address=("127.0.4.10", 0)
        ) as connection:
            connection.sendall(head)
    assert eventually(lambda: ask(attacked, "/v1/check", b"run\n", source="127.0.4.10").status == 200)


# -- the end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_requests_in_flight_are_answered_when_it_stops(
    workers: int, runs: pd.DataFrame, tmp_path: Path
) -> None:
    import sys

    command = [sys.executable, "-u", "-m", "planner", "serve", "--port", "0", "--workers", str(workers)]
    around = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=around)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().split()[2]

        def up() -> bool:
            with suppress(OSError):
                return ask(address, "/healthz").status == 200
            return False

        eventually(up)
        with ThreadPoolExecutor(4) as pool:
            questions = [{"ud": f"{200 + i}.5M", "flops": "5e18"} for i in range(4)]
            asked = [pool.submit(ask, address, "/v1/plan", question) for question in questions]
            eventually(lambda: 'route="/healthz"' in ask(address, "/metrics").body.decode())
            process.send_signal(signal.SIGTERM)
            said = [call.result().status for call in asked]
        assert said == [200] * 4
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert not list(tmp_path.glob("databound-*"))


def test_no_request_leaves_the_machine(tmp_path: Path, runs: pd.DataFrame) -> None:
    """Everything that the server and its workers connect to or look up, in a visit from question to fit."""
    log = tmp_path / "connections"
    log.touch()
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "def hear(event, details):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.sendto'):\n"
        f"        open({str(log)!r}, 'a').write(repr((event, details[-1] if event != 'socket.getaddrinfo'"
        " else details[0])) + '\\n')\n"
        "sys.addaudithook(hear)\n"
    )
    paths = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    with serving(PYTHONPATH=paths) as address:
        assert ask(address, "/v1/plan", QUESTION).status == 200
        assert ask(address, "/v1/fit?refits=0", runs.to_csv(index=False).encode()).status == 200
        page = ask(address, "/docs").body.decode()
    assert not re.search(r"(src|href)=.?(https?:)?//", page)
    for line in log.read_text().splitlines():
        assert "127.0.0.1" in line or "localhost" in line or socket.gethostname() in line, line
