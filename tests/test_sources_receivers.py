"""Prometheus and OTLP as sources: what was answered with success is read, all else is said."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import pickle
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import cramjam
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import yaml
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

import servers
from catchment.durable.folder import Folder
from catchment.errors import SourceError
from catchment.measure.ports import free_port
from catchment.serving.remote_write import STALE, WriteRequest, WriteRequest2
from catchment.sources import Otlp, Prometheus, Source, otlp_metrics, receiver_server
from catchment.sources.receiver import HttpReceiver, RefusedRequest
from patience import PATIENCE, wait_for
from source_reading import read_between
from test_transport_security import keys
from test_up import nodes_of

__all__ = ["keys"]

AT = 1_700_000_000_000
PROMETHEUS = {"content-type": "application/x-protobuf", "content-encoding": "snappy"}
VERSION_2 = PROMETHEUS | {
    "content-type": f"{PROMETHEUS['content-type']};proto=io.prometheus.write.v2.Request"
}
STALE_NAN = struct.unpack("<d", struct.pack("<Q", STALE))[0]


@contextmanager
def opened(made: HttpReceiver, home: Path) -> Iterator[Any]:
    made.open(Folder(str(home)))
    try:
        yield made
    finally:
        made.close()


def prometheus(**more: Any) -> Prometheus:
    return Prometheus(**({"listen": "127.0.0.1:0"} | more))


def otlp(**more: Any) -> Otlp:
    return Otlp(**({"listen": "127.0.0.1:0"} | more))


def post(
    port: int, body: bytes, headers: Mapping[str, str] = PROMETHEUS, path: str = "/api/v1/write"
) -> tuple[int, str, Mapping[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("POST", path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace"), answer.headers
    finally:
        connection.close()


def snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def request(*series: tuple[dict[str, str], list[tuple[float, int]]]) -> bytes:
    made = WriteRequest()
    for labels, samples in series:
        one = made.timeseries.add()
        for name, value in labels.items():
            one.labels.add(name=name, value=value)
        for value, at in samples:
            one.samples.add(value=value, timestamp=at)
    return snappy(made.SerializeToString())


def up(*values: float, first: int = AT, **labels: str) -> bytes:
    samples = [(value, first + place) for place, value in enumerate(values)]
    return request(({"__name__": "up", **labels}, samples))


def rows(made: Source, columns: list[str] | None = None) -> tuple[pa.Table, pa.Table]:
    """All that is in the spool, as copies that came by pickle read it."""
    options = {} if columns is None else {"columns": columns}
    return read_between(made, made.start(), made.bound({}), **options)


def counted(made: Source) -> dict[str, int | None]:
    return {one.reason: one.rows for one in made.never_read()}


# A request as the protocol documents it, byte by byte: one series of two labels and one sample.
# WriteRequest.timeseries(1) is TimeSeries { labels(1) { name(1), value(2) }, and
# samples(2) { value(1), timestamp(2) } }.
V1 = bytes.fromhex(
    "0a2a"
    "0a0e 0a08 5f5f6e616d655f5f 1202 7570"
    "0a06 0a01 61 1201 62"
    "1210 09 000000000000f83f 10 80d095ffbc31".replace(" ", "")
)
# Request.symbols(4) "", "__name__", "up", "a", "b"; timeseries(5) { labels_refs(1), samples(2) }
V2 = bytes.fromhex(
    "2200 2208 5f5f6e616d655f5f 2202 7570 2201 61 2201 62"
    "2a18 0a04 01020304 1210 09 000000000000f83f 10 80d095ffbc31".replace(" ", "")
)


@pytest.mark.parametrize(("body", "headers"), [(V1, PROMETHEUS), (V2, VERSION_2)])
def test_bytes_of_the_protocol_are_read(
    tmp_path: Path, body: bytes, headers: Mapping[str, str]
) -> None:
    with opened(prometheus(labels=["a"]), tmp_path) as made:
        status, _, said = post(made.port, snappy(body), headers)
        assert status == 204
        if headers is VERSION_2:
            assert said["X-Prometheus-Remote-Write-Samples-Written"] == "1"
            assert said["X-Prometheus-Remote-Write-Histograms-Written"] == "0"
        (row,) = rows(made)[0].to_pylist()
        assert row | {"time": row["time"].timestamp()} == {
            "time": AT / 1000,
            "metric": "up",
            "value": 1.5,
            "a": "b",
        }


def test_the_messages_are_what_the_bytes_are() -> None:
    assert WriteRequest.FromString(V1).SerializeToString() == V1
    assert WriteRequest2.FromString(V2).SerializeToString() == V2


def test_labels_are_columns_and_others_are_json(tmp_path: Path) -> None:
    made = prometheus(labels={"host": "instance", "job": "job"}, other_labels="rest")
    assert made.event_schema().names == ["time", "metric", "value", "host", "job", "rest"]
    with opened(made, tmp_path):
        body = request(
            ({"__name__": "up", "instance": "a", "z": "1", "b": "é"}, [(1.0, AT), (2.0, AT + 1)]),
            ({"job": "", "instance": "c"}, [(3.0, AT)]),
        )
        assert post(made.port, body)[0] == 204
        table, bad = rows(made)
        assert bad.num_rows == 0 and table.schema == made.event_schema()
        assert table["host"].to_pylist() == ["a", "a", "c"]
        assert table["job"].to_pylist() == [None, None, None]
        assert table["metric"].to_pylist() == ["up", "up", None]
        assert table["rest"].to_pylist() == ['{"b":"é","z":"1"}'] * 2 + ["{}"]
        some, _ = rows(made, ["value", "host"])
        assert some.to_pydict() == {"value": [1.0, 2.0, 3.0], "host": ["a", "a", "c"]}
        (split,) = made.splits(made.start(), made.bound({}), 1)
        assert sum(piece.events.num_rows for piece in made.read(split, [], None)) == 3


@pytest.mark.parametrize(
    ("stale", "values"), [("drop", [1.0, "nan"]), ("keep", [1.0, None, "nan"])]
)
def test_a_staleness_marker_is_no_value_and_another_nan_is(
    tmp_path: Path, stale: str, values: list[Any]
) -> None:
    with opened(prometheus(stale=stale), tmp_path) as made:
        assert post(made.port, up(1.0, STALE_NAN, float("nan")))[0] == 204
        found = rows(made)[0]["value"].to_pylist()
        assert ["nan" if value != value else value for value in found] == values
        told = {"staleness markers are not read as values": 1} if stale == "drop" else {}
        assert counted(made) == told


def test_what_is_not_read_is_counted(tmp_path: Path) -> None:
    message = WriteRequest()
    one = message.timeseries.add()
    one.histograms.add()
    one.histograms.add()
    one.exemplars.add()
    with opened(prometheus(), tmp_path) as made:
        assert post(made.port, snappy(message.SerializeToString()))[0] == 204
        assert counted(made) == {
            "native histograms are not read": 2,
            "exemplars are not read": 1,
        }
        assert made.bound({}) == made.start()  # nothing was worth keeping


def test_times_that_are_none_are_set_aside(tmp_path: Path) -> None:
    with opened(prometheus(), tmp_path) as made:
        body = request(({"__name__": "up"}, [(1.0, AT), (2.0, 2**62)]))
        assert post(made.port, body)[0] == 204
        table, bad = rows(made)
        assert table["value"].to_pylist() == [1.0]
        (row,) = bad.to_pylist()
        assert (row["origin"], row["reason"]) == (
            "prometheus",
            f"the timestamp {2**62} is not a time",
        )
        assert json.loads(row["body"])["value"] == "2.0"


BAD_BODIES = [
    (b"", PROMETHEUS, 400, "the body is not compressed by Snappy: "),
    (b"\xff\xff\xff", PROMETHEUS, 400, "the body is not compressed by Snappy: "),
    (snappy(b"\x0a\x05x"), PROMETHEUS, 400, "the body is not a prometheus.WriteRequest: "),
    (snappy(b"\x0a\x07\x0a\x05\x0a\x03\xff\xfe\xfd"), PROMETHEUS, 400, "the body is not a prom"),
    (
        snappy(WriteRequest2(timeseries=[{"labels_refs": [0]}]).SerializeToString()),
        VERSION_2,
        400,
        "a series has a label without a value\n",
    ),
    (
        snappy(
            WriteRequest2(symbols=["a"], timeseries=[{"labels_refs": [0, 9]}]).SerializeToString()
        ),
        VERSION_2,
        400,
        "a series refers to symbol 9 of 1 symbols\n",
    ),
    (
        request(({f"l{n}": "x" for n in range(300)}, [(1.0, AT)])),
        PROMETHEUS,
        400,
        "a series has 300 labels; at most 256 fit\n",
    ),
    (
        snappy(bytes(200_000)),
        PROMETHEUS,
        413,
        "the body has 200000 bytes when decompressed; at most 100000 fit\n",
    ),
    (
        b"\xff\xff\xff\xff\x0f",
        PROMETHEUS,
        413,
        "the body has 4294967295 bytes when decompressed; at most 100000 fit\n",
    ),
    (bytes(60_000), PROMETHEUS, 413, "the body has 60000 bytes; at most 50000 are taken\n"),
    (
        up(1.0),
        {},
        415,
        "the content type is missing; application/x-protobuf of prometheus.WriteRequest or io.",
    ),
    (
        up(1.0),
        PROMETHEUS | {"content-type": "application/x-protobuf;proto=other"},
        415,
        "the content type is application/x-protobuf;proto=other; ",
    ),
    (
        up(1.0),
        PROMETHEUS | {"content-encoding": "gzip"},
        415,
        "the content encoding is gzip; snappy is taken\n",
    ),
]


@pytest.mark.parametrize(("body", "headers", "status", "text"), BAD_BODIES)
def test_a_bad_body_is_refused_with_its_reason(
    tmp_path: Path, body: bytes, headers: Mapping[str, str], status: int, text: str
) -> None:
    with opened(prometheus(max_body=50_000, max_decompressed=100_000), tmp_path) as made:
        code, said, _ = post(made.port, body, headers)
        assert code == status and said.startswith(text)
        assert counted(made) == {f"requests were refused with {status}": 1}
        assert post(made.port, up(1.0))[0] == 204
        assert rows(made)[0]["value"].to_pylist() == [1.0]


def test_other_addresses_and_methods(tmp_path: Path) -> None:
    with opened(prometheus(), tmp_path) as made:
        assert post(made.port, up(1.0), path="/other")[:2] == (
            404,
            "requests are taken at /api/v1/write\n",
        )
        connection = http.client.HTTPConnection("127.0.0.1", made.port, timeout=PATIENCE)
        connection.request("GET", made.path)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (405, b"requests are taken by POST\n")
        connection.close()


def test_a_token_is_needed(tmp_path: Path) -> None:
    with opened(prometheus(token="right-one"), tmp_path) as made:
        for shown in ("", "Bearer wrong", "Bearer", "Basic right-one", "Bearer right-one2"):
            status, said, headers = post(made.port, up(1.0), PROMETHEUS | {"authorization": shown})
            assert (status, said) == (401, "the token is missing or wrong\n")
            assert headers["www-authenticate"] == "Bearer"
        right = PROMETHEUS | {"authorization": "Bearer right-one"}
        assert post(made.port, up(1.0), right)[0] == 204
        assert counted(made) == {}


def test_over_tls(tmp_path: Path, keys: Any) -> None:
    ours = keys("a", "ours")
    made = prometheus(certificate=ours.certificate, key=ours.key, token="t")
    with opened(made, tmp_path):
        context = ssl.create_default_context(cafile=ours.authority)
        connection = http.client.HTTPSConnection("127.0.0.1", made.port, context=context)
        connection.request("POST", made.path, up(1.0), PROMETHEUS | {"authorization": "Bearer t"})
        assert connection.getresponse().status == 204
        connection.close()
        with pytest.raises((OSError, http.client.HTTPException)):
            post(made.port, up(1.0))


def test_a_full_spool_is_said_and_loses_nothing(tmp_path: Path) -> None:
    with opened(prometheus(max_spool=600), tmp_path) as made:
        taken = []
        for number in range(100):
            status, said, headers = post(made.port, up(float(number), first=AT + number))
            if status != 204:
                break
            taken.append(float(number))
        assert (status, said) == (503, "the spool is full; try again later\n")
        assert headers["retry-after"] == "5" and 0 < len(taken) < 100
        assert made.capacities()[0].used >= 600
        end = made.latest(made.start())
        assert read_between(made, made.start(), end)[0]["value"].to_pylist() == taken
        made.commit(end)
        assert post(made.port, up(7.0))[0] == 204
        assert counted(made) == {}


def test_silent_strangers_neither_stay_nor_keep_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(prometheus(token="t"), tmp_path) as made:
        held = [socket.create_connection(("127.0.0.1", made.port)) for _ in range(100)]
        try:
            headers = PROMETHEUS | {"authorization": "Bearer t"}
            assert post(made.port, up(1.0), headers)[0] == 204
            assert len(made._server.strangers) <= 48
        finally:
            for one in held:
                one.close()


def test_a_body_that_never_ends_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_server, "BODY_SECONDS", 0.2)
    monkeypatch.setattr(receiver_server, "SECONDS", 0.2)
    with opened(prometheus(), tmp_path) as made:
        head = f"POST {made.path} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in PROMETHEUS.items())
        with socket.create_connection(("127.0.0.1", made.port), timeout=PATIENCE) as connection:
            connection.sendall(f"{head}\r\nabc".encode())
            said = b""
            while more := connection.recv(1000):
                said += more
        assert said.startswith(b"HTTP/1.1 408") and said.endswith(
            b"the body took longer than 0 s\n"
        )


def test_bodies_of_all_senders_share_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_server, "BODIES", 1000)
    with opened(prometheus(max_body=1000), tmp_path) as made:
        head = f"POST {made.path} HTTP/1.1\r\nhost: x\r\ncontent-length: 990\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in PROMETHEUS.items())
        with socket.create_connection(("127.0.0.1", made.port), timeout=PATIENCE) as connection:
            connection.sendall(f"{head}\r\nabc".encode())
            wait_for(lambda: made._server._bodies)
            status, said, headers = post(made.port, up(1.0))
            assert (status, said) == (503, "too many requests at once\n")
            assert headers["retry-after"] == "1"
        wait_for(lambda: not made._server._bodies)
        assert post(made.port, up(1.0))[0] == 204


def test_many_senders_at_once_are_all_kept(tmp_path: Path) -> None:
    with opened(prometheus(labels=["who"]), tmp_path) as made:

        def send(who: int) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", made.port, timeout=PATIENCE)
            for number in range(20):
                body = up(float(number), first=AT + number, who=str(who))
                connection.request("POST", made.path, body, PROMETHEUS)
                answer = connection.getresponse()
                assert (answer.status, answer.read()) == (204, b"")
            connection.close()

        threads = [threading.Thread(target=send, args=(who,)) for who in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = rows(made)[0]
        pairs = zip(found["who"].to_pylist(), found["value"].to_pylist(), strict=True)
        assert sorted(pairs) == sorted((str(w), float(n)) for w in range(8) for n in range(20))


RECEIVER = """
import sys
from catchment.durable.folder import Folder
from catchment.sources import Prometheus
made = Prometheus(listen="127.0.0.1:0")
made.open(Folder(sys.argv[1]))
print(made.port, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_receiver_killed_again_and_again_loses_nothing_it_answered(tmp_path: Path) -> None:
    answered: list[float] = []
    number = 0
    for round in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", RECEIVER, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None and child.stdin is not None
        port = int(child.stdout.readline())
        killer = threading.Timer(0.05 + 0.05 * round, child.send_signal, [signal.SIGKILL])
        try:
            while True:
                assert post(port, up(float(number), first=AT + number))[0] == 204
                answered.append(float(number))
                number += 1
                if killer.ident is None:  # on a busy machine the first answer takes its time
                    killer.start()
        except (OSError, http.client.HTTPException):
            number += 1  # what was not answered may be there or not; its sender would repeat it
        killer.join()
        child.wait(PATIENCE)
        child.stdin.close()
        child.stdout.close()
    with opened(prometheus(), tmp_path) as made:
        found = rows(made)[0]["value"].to_pylist()
    assert len(answered) >= 4 and set(answered) <= set(found) and len(found) <= number


def sent(port: int, body: bytes) -> None:
    """Sends until it is answered with success, as Prometheus does."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(OSError, http.client.HTTPException):
            if post(port, body)[0] == 204:
                return
        time.sleep(0.1)
    raise AssertionError("nobody takes it")


@pytest.mark.slow
def test_a_node_that_receives_may_be_killed(tmp_path: Path) -> None:
    """The sum of each second and label, over a tree whose local node is killed on the way.

    A request that was not answered is sent again, and distinct_on makes its samples count once.
    """
    port = free_port()
    local = {"type": "prometheus", "listen": f"127.0.0.1:{port}", "labels": ["who"]}
    query = {
        "name": "q",
        "select": ["sum(value) as s", "count(*) as n"],
        "by": "who",
        "window": "tumbling(1s)",
        "distinct_on": ["time", "who"],
    }
    job = {
        "name": "received",
        "time": "time",
        "queries": [query],
        "checkpoint": str(tmp_path / "state"),
        "sinks": [{"type": "parquet", "path": str(tmp_path / "out")}],
        "nodes": [
            {"id": "root", "listen": f"127.0.0.1:{free_port()}", "engine": "embedded"},
            {"id": "a", "parent": "root", "engine": "embedded", "source": local},
        ],
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    up_command = [sys.executable, "-m", "catchment.cli.main", "up", str(path), "--quiet"]
    wanted: dict[tuple[int, str], list[float]] = {}
    with subprocess.Popen(up_command, stderr=subprocess.PIPE, text=True) as running:
        try:
            for number in range(40):
                who, at = f"w{number % 3}", AT + number * 250
                sent(port, up(float(number), first=at, who=who))
                wanted.setdefault((at // 1000, who), []).append(float(number))
                if number == 20:
                    os.kill(nodes_of(path)["a"], signal.SIGKILL)
            sent(port, up(0.0, first=AT + 1_000_000, who="end"))
            wait_for(lambda: len(windows_of(tmp_path / "out")) >= len(wanted))
        finally:
            running.send_signal(signal.SIGTERM)
            _, said = running.communicate(timeout=PATIENCE)
    assert "a has ended (killed by SIGKILL)" in said and "another process" not in said
    assert windows_of(tmp_path / "out") == {
        key: (sum(values), len(values)) for key, values in wanted.items()
    }


def windows_of(folder: Path) -> dict[tuple[int, str], tuple[float, int]]:
    """The results by the second at which their window begins, and their key."""
    if not (folder / "q").exists():
        return {}
    table = ds.dataset(folder / "q", format="parquet").to_table()
    return {
        (int(row["window_start"].timestamp()), row["who"]): (row["s"], row["n"])
        for row in table.to_pylist()
    }


def scrapes(prometheus: servers.PrometheusServer) -> set[int]:
    """The times at which Prometheus has scraped itself, as it knows them; microseconds."""
    address = f"{prometheus.url}/api/v1/query?query=up[1h]"
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        (series,) = json.loads(answer.read())["data"]["result"]
    return {round(1000 * time) * 1000 for time, _ in series["values"]}


@pytest.mark.slow
@pytest.mark.servers
def test_a_real_prometheus_sends_here(tmp_path: Path) -> None:
    """It shows its token, sends what it scrapes, and after a restart of ours goes on."""
    if why := servers.missing("prometheus"):
        pytest.skip(why)
    port = free_port()  # that no connection is given while nobody listens there

    def receiver() -> Prometheus:
        made = prometheus(
            listen=f"127.0.0.1:{port}",
            labels=["job", "site"],
            other_labels="rest",
            token="secret-of-it",
        )
        made.open(Folder(str(tmp_path / "home")))
        return made

    def ups(table: pa.Table) -> pa.Table:
        return table.filter(pa.compute.equal(table["metric"], "up"))

    made = receiver()
    url = f"http://127.0.0.1:{port}/api/v1/write"
    try:
        with servers.prometheus(tmp_path / "prometheus", url, "secret-of-it") as sender:
            wait_for(lambda: made.bound({})["count"] >= 2)
            made.close()
            made = receiver()
            before = made.bound({})["count"]
            wait_for(lambda: made.bound({})["count"] >= before + 2)
            scraped = scrapes(sender)
            wait_for(lambda: scraped <= {*ups(rows(made)[0])["time"].cast(pa.int64()).to_pylist()})
        table, bad = rows(made)
    finally:
        made.close()
    assert bad.num_rows == 0 and len(scraped) > 1
    found = ups(table)
    assert set(found["value"].to_pylist()) == {1.0} and set(found["job"].to_pylist()) == {"itself"}
    assert set(table["site"].to_pylist()) == {"here"}
    assert json.loads(found["rest"][0].as_py())["instance"].startswith("127.0.0.1:")


OTLP = {"content-type": "application/x-protobuf"}


def exported(**metric: Any) -> dict[str, Any]:
    resource = {"attributes": [{"key": "host", "value": {"string_value": "h1"}}]}
    return {"resource_metrics": [{"resource": resource, "scope_metrics": [{"metrics": [metric]}]}]}


def number(value: float, **more: Any) -> dict[str, Any]:
    return {"time_unix_nano": AT * 10**6 + 999, "as_double": value, **more}


def export(made: Otlp, message: dict[str, Any]) -> tuple[int, str, Mapping[str, str]]:
    body = metrics_service_pb2.ExportMetricsServiceRequest(**message).SerializeToString()
    return post(made.port, body, OTLP, made.path)


def test_a_real_sdk_exports_here(tmp_path: Path) -> None:
    """Counters, gauges and histograms of OpenTelemetry's own SDK, compressed by gzip."""
    from opentelemetry.exporter.otlp.proto.http import Compression

    made = otlp(attributes=["route", "service.name"], other_attributes="rest", token="t")
    with opened(made, tmp_path):
        exporter = OTLPMetricExporter(
            f"http://127.0.0.1:{made.port}/v1/metrics",
            headers={"Authorization": "Bearer t"},
            compression=Compression.Gzip,
        )
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
        provider = MeterProvider([reader], Resource({"service.name": "shop"}))
        meter = provider.get_meter("test")
        meter.create_counter("orders", unit="1").add(3, {"route": "/a", "n": 7})
        meter.create_gauge("heat").set(21.5)
        histogram = meter.create_histogram("took", unit="ms")
        for value in (1.0, 2.0, 9.0):
            histogram.record(value, {"route": "/b"})
        assert provider.force_flush()
        provider.shutdown()
        table, bad = rows(made)
    assert bad.num_rows == 0 and table.schema == made.event_schema()
    found = {
        row["metric"]: row
        for row in table.to_pylist()
        if row["metric"] in ("orders", "heat", "took")
    }
    orders, heat, took = found["orders"], found["heat"], found["took"]
    assert (orders["kind"], orders["temporality"], orders["monotonic"]) == (
        "sum",
        "cumulative",
        True,
    )
    assert (orders["value"], orders["unit"], orders["route"], orders["rest"].count('"n":7')) == (
        3.0,
        "1",
        "/a",
        1,
    )
    assert (heat["kind"], heat["value"], heat["temporality"]) == ("gauge", 21.5, None)
    assert (took["kind"], took["count"], took["sum"], took["min"], took["max"]) == (
        "histogram",
        3,
        12.0,
        1.0,
        9.0,
    )
    assert {row["service.name"] for row in found.values()} == {"shop"}
    assert took["value"] is None and took["start_time"] < took["time"]


def test_json_is_the_same_as_protobuf(tmp_path: Path) -> None:
    text = {
        "resourceMetrics": [
            {
                "resource": {"attributes": [{"key": "host", "value": {"stringValue": "h1"}}]},
                "scopeMetrics": [
                    {
                        "metrics": [
                            {
                                "name": "m",
                                "unit": "s",
                                "futureField": 1,
                                "sum": {
                                    "aggregationTemporality": 1,
                                    "isMonotonic": True,
                                    "dataPoints": [
                                        {
                                            "timeUnixNano": str(AT * 10**6 + 999),
                                            "asInt": "5",
                                            "attributes": [
                                                {"key": "ok", "value": {"boolValue": True}}
                                            ],
                                        }
                                    ],
                                },
                            }
                        ]
                    }
                ],
            }
        ]
    }
    point = {
        "time_unix_nano": AT * 10**6 + 999,
        "as_int": 5,
        "attributes": [{"key": "ok", "value": {"bool_value": True}}],
    }
    held = {"aggregation_temporality": 1, "is_monotonic": True, "data_points": [point]}
    made = otlp(attributes={"of": "host", "ok": "ok"})
    with opened(made, tmp_path):
        body = json.dumps(text).encode()
        for encoding, sent in {"": body, "gzip": gzip.compress(body)}.items():
            headers = {"content-type": "application/json", "content-encoding": encoding}
            status, said, answered = post(made.port, sent, headers, made.path)
            assert (status, said, answered["content-type"]) == (200, "{}", "application/json")
        status, said, answered = export(made, exported(name="m", unit="s", sum=held))
        assert (status, said, answered["content-type"]) == (200, "", "application/x-protobuf")
        found = rows(made)[0].to_pylist()
    assert found[0] == found[1] == found[2]
    row = found[0]
    assert (row["value"], row["temporality"], row["of"], row["ok"]) == (5.0, "delta", "h1", "true")
    assert row["time"].timestamp() == AT / 1000 and row["start_time"] is None


def test_points_of_every_kind(tmp_path: Path) -> None:
    at = {"time_unix_nano": AT * 10**6}
    kinds: dict[str, Any] = {
        "gauge": {"data_points": [number(1.0)]},
        "histogram": {"data_points": [{**at, "count": 2}]},
        "exponential_histogram": {"data_points": [{**at, "count": 2, "sum": 3.0}]},
        "summary": {"data_points": [{**at, "count": 2, "sum": 3.0}]},
    }
    with opened(otlp(attributes=["host"]), tmp_path) as made:
        for kind, held in kinds.items():
            assert export(made, exported(name=kind, **{kind: held}))[0] == 200
        assert export(made, exported(name="nothing"))[0] == 200
        found = rows(made)[0]
    shown = [found[name].to_pylist() for name in ("kind", "value", "count", "sum", "host")]
    assert shown == [
        [*kinds],
        [1.0, None, None, None],
        [None, 2, 2, 2],
        [None, None, 3.0, 3.0],
        ["h1"] * 4,
    ]


@pytest.mark.parametrize("stale", ["drop", "keep"])
def test_points_without_a_value_or_a_time(tmp_path: Path, stale: Any) -> None:
    points = [number(1.0), number(0.0, flags=1), {"as_double": 9.0}]
    with opened(otlp(stale=stale), tmp_path) as made:
        assert export(made, exported(name="m", gauge={"data_points": points}))[0] == 200
        table, bad = rows(made)
        told = {"points without a recorded value are not read": 1} if stale == "drop" else {}
        assert counted(made) == told
    assert table["value"].to_pylist() == ([1.0] if stale == "drop" else [1.0, None])
    (row,) = bad.to_pylist()
    assert (row["origin"], row["reason"]) == ("otlp: m", "the point has no time")
    assert json.loads(row["body"]) == {"asDouble": 9.0}


DEEP = b'{"resourceMetrics":' * 50_000
BAD_EXPORTS = [
    (b"\x0a\x05x", OTLP, 400, "the body is not an ExportMetricsServiceRequest: "),
    (b"{", {"content-type": "application/json"}, 400, "the body is not an ExportMetrics"),
    (b"\xff", {"content-type": "application/json"}, 400, "the body is not an ExportMetrics"),
    (b'{"resourceMetrics": 5}', {"content-type": "application/json"}, 400, "the body is not an"),
    (DEEP, {"content-type": "application/json"}, 400, "the body is not an ExportMetrics"),
    (b"x", OTLP | {"content-encoding": "gzip"}, 400, "the body is not compressed by gzip: "),
    (
        gzip.compress(b"abc", mtime=0)[:-3],
        OTLP | {"content-encoding": "gzip"},
        400,
        "the body is not compressed by gzip: it ends too early",
    ),
    (
        gzip.compress(bytes(3_000_000), mtime=0),
        OTLP | {"content-encoding": "gzip"},
        413,
        "the body has more than 2000000 bytes when decompressed",
    ),
    (
        b'{"resourceMetrics":[' + b"{}," * 100_000 + b"{}]}",
        {"content-type": "application/json"},
        413,
        "the body has more than 100000 JSON objects; protobuf takes more",
    ),
    (b"", {"content-type": "text/plain"}, 415, "the content type is text/plain; "),
    (b"", OTLP | {"content-encoding": "zstd"}, 415, "the content encoding is zstd; gzip is taken"),
]


@pytest.mark.parametrize(("body", "headers", "status", "text"), BAD_EXPORTS)
def test_a_bad_export_is_refused_with_its_reason(
    tmp_path: Path, body: bytes, headers: Mapping[str, str], status: int, text: str
) -> None:
    with opened(otlp(max_decompressed=2_000_000), tmp_path) as made:
        code, said, answered = post(made.port, body, headers, made.path)
        if headers["content-type"] == "application/x-protobuf":
            assert answered["content-type"] == "application/x-protobuf"
            assert said[0] == "\x12"  # the message of a google.rpc.Status
            said = said[2 if len(said) < 130 else 3 :]
        else:
            said = json.loads(said)["message"]
        assert code == status and said.startswith(text)
        assert counted(made) == {f"requests were refused with {status}": 1}


def test_a_body_of_empty_messages_is_refused_before_they_are_looked_at() -> None:
    intake = otlp_metrics.OtlpMetrics(8 << 20)
    with pytest.raises(RefusedRequest, match="the request has more than 1048576 resources"):
        intake.inspect("protobuf", b"\x0a\x00" * 1_100_000)
    intake_of_prometheus = prometheus().intake()
    with pytest.raises(RefusedRequest, match="the request has more than 1048576 series"):
        intake_of_prometheus.inspect("1", snappy(b"\x0a\x00" * 1_100_000))
    samples = b"\x12\x00" * 1_100_000
    with pytest.raises(RefusedRequest, match="the request has 1100000 samples; at most 1048576"):
        intake_of_prometheus.inspect("1", snappy(b"\x0a\xc0\xa3\x86\x01" + samples))


WRONG = [
    ({"labels": ["value"]}, "a column of labels has the name of another (given: value); give it"),
    ({"labels": ["a", "a"]}, "labels has a name twice (given: a, a)"),
    ({"labels": ["rest"], "other_labels": "rest"}, "a column of labels has the name of another"),
    ({"labels": [""]}, "a column of labels has no name"),
    ({"path": "x"}, "the path does not begin with a slash (given: x)"),
    ({"certificate": "a.pem"}, "a certificate and its key go together; add the key"),
    ({"authority": "a.pem"}, "an authority without a certificate checks nobody; add certificate"),
    ({"token": "a b"}, "the token is not one; a token is ASCII, without spaces"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
def test_options_that_cannot_be(options: dict[str, Any], text: str) -> None:
    with pytest.raises(SourceError) as caught:
        prometheus(**options)
    assert str(caught.value).startswith(text)


def test_others_than_this_machine_need_a_token_and_a_certificate(tmp_path: Path) -> None:
    made = prometheus(listen="0.0.0.0:0", token="t")
    for act in (made.check, lambda: made.open(Folder(str(tmp_path)))):
        with pytest.raises(SourceError) as caught:
            act()
        assert str(caught.value) == (
            "a receiver that others than this machine can reach needs a certificate (given: "
            "listen: 0.0.0.0:0); listen at 127.0.0.1, add certificate, key and token, or write "
            "exposed: true if everybody who reaches the port may send events"
        )
    prometheus(listen="0.0.0.0:0", exposed=True).check()


def test_an_address_that_is_taken(tmp_path: Path) -> None:
    with opened(prometheus(), tmp_path / "a") as made:
        other = otlp(listen=f"127.0.0.1:{made.port}")
        with pytest.raises(SourceError, match=r"a receiver cannot listen there .*already in use"):
            other.open(Folder(str(tmp_path / "b")))


def test_a_source_that_is_open_travels_as_its_options(tmp_path: Path) -> None:
    with opened(prometheus(token="t"), tmp_path) as made:
        copy = pickle.loads(pickle.dumps(made))
        assert copy == prometheus(token="t") and copy.failure() is None
        assert "'t'" not in repr(made)
    with pytest.raises(SourceError, match="the source is not open"):
        copy.latest({})


def test_a_disk_that_takes_no_more_ends_the_receiver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(prometheus(), tmp_path) as made:

        def full() -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(made.spool(), "sync", full)
        assert post(made.port, up(1.0))[:2] == (503, "the disk takes no more\n")
        with pytest.raises(SourceError, match=r"requests cannot be kept in the spool .*No space"):
            made.latest(made.start())
