"""Sinks that post: a webhook, and Prometheus' remote write, also to a real Prometheus."""

from __future__ import annotations

import json
import logging
import pickle
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import cramjam
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import catchment as ct
import servers
from catchment.errors import SinkError
from catchment.serving.remote_write import WriteRequest
from catchment.sinks import HttpSink, PrometheusSink, Sink
from catchment.sinks.base import Delivery
from catchment.sinks.prometheus import label_name, label_value, metric_name
from patience import PATIENCE
from sink_rows import at, delivery, every_type, rows

SUM = "q:sum_v__gxvwp6mdegddlr5acuakxqe3iq"
END = int(at(1).timestamp() * 1000)


class Posted(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class Taker:
    """A server that keeps what is posted, and answers as it is told."""

    def __init__(self) -> None:
        self.posted: list[Posted] = []
        self.answers: list[tuple[int, str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.posted.append(Posted(self.path, dict(self.headers.items()), body))
                status, text, headers = outer.answers.pop(0) if outer.answers else (204, "", {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/in"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def taker() -> Iterator[Taker]:
    made = Taker()
    try:
        yield made
    finally:
        made.close()


def series(posted: Posted) -> list[tuple[dict[str, str], list[tuple[float, int]]]]:
    message = WriteRequest.FromString(bytes(cramjam.snappy.decompress_raw(posted.body)))
    return [
        (
            {label.name: label.value for label in one.labels},
            [(sample.value, sample.timestamp) for sample in one.samples],
        )
        for one in message.timeseries
    ]


def test_a_delivery_is_one_post_with_a_key(taker: Taker) -> None:
    sink = HttpSink(url=taker.url, token="t", headers={"X-Team": "ours"})
    sink.check()
    made = delivery({"b": rows(["é"], [2.5]), "a": rows(["x", None], [1.0, float("nan")])}, 7, 3)
    sink.write(made)
    pickle.loads(pickle.dumps(sink)).write(made)
    first, second = taker.posted
    assert first.body == second.body and first.path == "/in"
    assert first.headers["Idempotency-Key"] == '"job-abc-7-3-0"'
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert first.headers["Authorization"] == "Bearer t" and first.headers["X-Team"] == "ours"
    assert first.headers["Content-Type"] == "application/json"
    said = json.loads(first.body)
    assert {name: said[name] for name in ("job", "batch", "part", "number")} == {
        "job": "job-abc",
        "batch": 7,
        "part": 3,
        "number": 0,
    }
    found = [(one["query"], one["row"]) for one in said["results"]]
    assert [(query, row["user"], row["sum(v)"]) for query, row in found] == [
        ("a", "x", 1.0),
        ("a", None, "NaN"),
        ("b", "é", 2.5),
    ]
    assert said["results"][0]["row"]["window_end"] == "2023-11-14T22:13:21.000000Z"


def test_rows_are_posts_and_long_deliveries_are_several(taker: Taker) -> None:
    made = delivery({"a": rows([f"u{n}" for n in range(5)], range(5))})
    HttpSink(url=taker.url, each="row").write(made)
    bodies = [json.loads(one.body) for one in taker.posted]
    assert [(body["query"], body["row"]["sum(v)"]) for body in bodies] == [
        ("a", n) for n in range(5)
    ]
    keys = [one.headers["Idempotency-Key"] for one in taker.posted]
    assert keys == [f'"job-abc-0-0-{n}"' for n in range(5)]
    taker.posted.clear()
    HttpSink(url=taker.url, max_rows=2).write(made)
    assert [len(json.loads(one.body)["results"]) for one in taker.posted] == [2, 2, 1]
    assert [json.loads(one.body)["number"] for one in taker.posted] == [0, 1, 2]
    taker.posted.clear()
    HttpSink(url=taker.url).write(delivery({"a": rows([], [])}))
    assert taker.posted == []


def test_every_type_is_json(taker: Taker) -> None:
    HttpSink(url=taker.url).write(delivery({"a": every_type()}))
    assert len(json.loads(taker.posted[0].body)["results"]) == 3


def test_a_server_that_is_busy_is_asked_again(taker: Taker) -> None:
    taker.answers = [(503, "later", {}), (429, "slowly", {"Retry-After": "0"}), (408, "", {})]
    HttpSink(url=taker.url).write(delivery({"a": rows(["x"], [1])}))
    assert len(taker.posted) == 4 and len({one.body for one in taker.posted}) == 1
    assert len({one.headers["Idempotency-Key"] for one in taker.posted}) == 1


def test_retry_after_is_waited_for(taker: Taker) -> None:
    taker.answers = [(503, "later", {"Retry-After": "1"})]
    start = time.monotonic()
    HttpSink(url=taker.url).write(delivery({"a": rows(["x"], [1])}))
    assert time.monotonic() - start >= 1 and len(taker.posted) == 2


def test_a_refusal_says_the_servers_reason_and_is_not_asked_again(taker: Taker) -> None:
    sink = HttpSink(url=f"{taker.url}/secret?key=1")
    taker.answers = [(422, "no such\n channel", {})]
    with pytest.raises(SinkError) as caught:
        sink.write(delivery({"a": rows(["x"], [1])}))
    shown = taker.url + "/..."
    assert str(caught.value) == (
        f"the http sink's server refuses results with HTTP 422 (given: {shown}); no such channel"
    )
    assert len(taker.posted) == 1 and "secret" not in repr(sink)
    taker.answers = [(307, "", {"Location": "https://elsewhere/in"})]
    with pytest.raises(SinkError, match="it is at https://elsewhere/in: write that as url"):
        sink.write(delivery({"a": rows(["x"], [1])}))


def test_a_server_that_is_away(taker: Taker) -> None:
    taker.answers = [(500, "broken", {})] * 50
    sink = HttpSink(url=taker.url, timeout="3s")
    with pytest.raises(SinkError) as caught:
        sink.write(delivery({"a": rows(["x"], [1])}))
    assert str(caught.value) == (
        f"the http sink's server takes nothing (given: {taker.url}); "
        "tried for 3 s; the last trouble: HTTP 500: broken"
    )
    nowhere = HttpSink(url="http://127.0.0.1:9/in", timeout="300ms")
    with pytest.raises(SinkError, match=r"server cannot be reached .*127.0.0.1:9.*refused"):
        nowhere.check()
    with pytest.raises(SinkError, match=r"takes nothing .* the last trouble: .*refused"):
        nowhere.write(delivery({"a": rows(["x"], [1])}))


def test_a_server_that_never_answers_is_given_up(taker: Taker) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        start = time.monotonic()
        with pytest.raises(SinkError, match="the last trouble: timed out"):
            HttpSink(url=url, timeout="500ms").write(delivery({"a": rows(["x"], [1])}))
        assert time.monotonic() - start < 60


WRONG: list[tuple[Callable[[], Sink], str]] = [
    (lambda: HttpSink(url="host/path"), "the url of the http sink is not one (given: host/path); "),
    (lambda: HttpSink(url="ftp://host"), "the url of the http sink is not one (given: ftp://host)"),
    (lambda: HttpSink(url="http://h:x/"), "the url of the http sink is not one (given: http://h:x"),
    (lambda: HttpSink(url="http://u:p@h/"), "the url of the http sink has a password in it; give"),
    (
        lambda: HttpSink(url="http://h", headers={"Authorization": "x"}),
        "this header is not for users to set (given: Authorization); a token goes into token",
    ),
    (lambda: HttpSink(url="http://h", headers={"a": "b\r\nc: d"}), "a header is not one (given: "),
    (lambda: PrometheusSink(url="nothing"), "the url of the prometheus sink is not one"),
    (lambda: PrometheusSink(url="http://h", metric="{query} x"), "the metric is not a name ("),
    (lambda: PrometheusSink(url="http://h", metric="{other}"), "the metric is not a name ("),
    (lambda: PrometheusSink(url="http://h", labels={"a-b": "c"}), "a label is not a name ("),
    (lambda: PrometheusSink(url="http://h", labels={"__name__": "c"}), "a label is not a name ("),
]


@pytest.mark.parametrize(("make", "text"), WRONG)
def test_options_that_cannot_be(make: Callable[[], Sink], text: str) -> None:
    with pytest.raises(SinkError) as caught:
        make()
    assert str(caught.value).startswith(text)


def test_results_are_samples(taker: Taker) -> None:
    sink = PrometheusSink(
        url=taker.url, labels={"site": "here"}, metric="catchment_{query}_{column}"
    )
    sink.check()
    sink.write(delivery({"load per user": rows(["x", None, "z"], [1.5, float("inf"), None])}))
    check, sent = taker.posted
    assert series(check) == []
    name = metric_name("catchment_{query}_{column}", "load per user", "sum(v)")
    assert name.startswith("catchment_load_per_user_sum_v__")
    assert series(sent) == [
        ({"__name__": name, "site": "here", "user": "x"}, [(1.5, END)]),
        ({"__name__": name, "site": "here"}, [(float("inf"), END)]),
    ]
    assert sent.headers["Content-Encoding"] == "snappy"
    assert sent.headers["X-Prometheus-Remote-Write-Version"] == "0.1.0"


def test_the_newest_revision_is_sent_and_a_retracted_result_is_not(taker: Taker) -> None:
    table = pa.concat_tables(
        [
            rows(["x", "y"], [1.0, 1.0], 0, 0),
            rows(["x"], [2.0], 0, 1),
            rows(["y"], [None], 0, 1, True).cast(rows(["x"], [2.0], 0, 1).schema),
        ]
    )
    PrometheusSink(url=taker.url).write(delivery({"q": table}))
    assert series(taker.posted[0]) == [
        ({"__name__": SUM, "user": "x"}, [(2.0, END)]),
    ]


def test_samples_of_one_series_are_in_order_and_requests_are_bounded(taker: Taker) -> None:
    table = pa.concat_tables([rows(["x"], [float(s)], s) for s in (4, 0, 3, 1, 2)])
    PrometheusSink(url=taker.url, max_samples=2).write(delivery({"q": table}))
    found = [samples for one in taker.posted for _, samples in series(one)]
    assert [value for samples in found for value, _ in samples] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert [len(samples) for samples in found] == [2, 2, 1]


def test_columns_that_are_no_numbers(taker: Taker) -> None:
    table = rows(["x"], [1.0]).append_column("worst", pa.array(["a"]))
    made = delivery({"q": table.append_column("ok", pa.array([True]))})
    with pytest.raises(SinkError) as caught:
        PrometheusSink(url=taker.url).write(made)
    assert str(caught.value) == (
        "column 'worst' of query 'q' is no number (given: string); name the columns to send, as in "
        "columns: [n, mean]"
    )
    PrometheusSink(url=taker.url, columns=["ok", "sum(v)"]).write(made)
    assert sorted(labels["__name__"] for labels, _ in series(taker.posted[0])) == [
        "q:ok",
        SUM,
    ]
    with pytest.raises(SinkError, match="query 'q' has none of the columns to send"):
        PrometheusSink(url=taker.url, columns=["summ"]).write(made)


def sent(taker: Taker, queries: list[ct.Query], events: pa.Table, **options: Any) -> dict[Any, Any]:
    """What the sink sends of the results of queries: values by series and time."""
    engine = ct.Engine(queries)
    engine.push(events)
    made = engine.close()
    results, keys = {q.name: made[q.name] for q in queries}, {q.name: q.keys for q in queries}
    PrometheusSink(url=taker.url, **options).write(Delivery("job", 0, 0, results, keys))
    found = [one for posted in taker.posted for one in series(posted)]
    taker.posted.clear()
    return {(frozenset(labels.items()), at): value for labels, held in found for value, at in held}


ALIKE = pa.table(
    {
        "ts": pa.array([1, 2], pa.timestamp("us")),
        "v": [1, 2],
        "w": [10, 20],
        "user.id": ["a", "b"],
        "user_id": ["x", "x"],
        "k": ["", None],
    }
)


def test_names_that_look_alike_are_series_of_their_own(taker: Taker) -> None:
    second = ct.tumbling("1s")
    s, t = ct.sum("v"), ct.sum("w")
    cases: list[tuple[list[ct.Query], list[float]]] = [
        ([ct.Query("q", s.alias("a b"), t.alias("a_b"), window=second)], [3, 30]),
        (
            [
                ct.Query("x y", s.alias("s"), window=second),
                ct.Query("x_y", t.alias("s"), window=second),
            ],
            [3, 30],
        ),
        (
            [
                ct.Query("a_b", s.alias("c"), window=second),
                ct.Query("a", t.alias("b_c"), window=second),
            ],
            [3, 30],
        ),
        ([ct.Query("q", s.alias("s"), by=["user.id", "user_id"], window=second)], [1, 2]),
        ([ct.Query("q", s.alias("s"), by="k", window=second)], [1, 2]),
    ]
    for queries, values in cases:
        assert sorted(sent(taker, queries, ALIKE).values()) == values
    # A label that every sample gets does not stand for a key that is null.
    keyed = [ct.Query("q", s.alias("s"), by="k", window=second)]
    events = ALIKE.set_column(5, "k", pa.array(["here", None]))
    assert sorted(sent(taker, keyed, events, labels={"k": "here"}).values()) == [1, 2]


def test_windows_with_equal_bounds_are_series_of_their_own(taker: Taker) -> None:
    times = pa.array([0, 0, 0, 0, 1_000_000], pa.timestamp("us"))
    events = pa.table({"ts": times, "v": [1, 2, 4, 8, 16]})
    found = sent(taker, [ct.Query("q", ct.sum("v").alias("s"), window=ct.cut("v > 0"))], events)
    assert sorted(found.values()) == [1, 2, 4, 8]
    assert {dict(labels)["window_index"] for labels, _ in found} == {"0", "1", "2"}


def test_names_that_prometheus_takes_stay_as_they_are() -> None:
    assert metric_name("x_{query}_{column}", "load_per_host", "mean") == "x_load_per_host_mean"
    assert metric_name("{query}:{column}", "load", "mean_speed") == "load:mean_speed"
    assert (label_name("user_id"), label_value("é")) == ("user_id", "é")


NAMES = st.text('aA_:. "2\0', max_size=5) | st.text(max_size=5)


TEMPLATES = (
    "{query}_{column}",
    "{column}{query}",
    "x_{query}_{query}_{column}",
    "{query:.1}{column}",
)


@given(NAMES, NAMES, NAMES, NAMES, st.sampled_from(TEMPLATES))
@example("a_b", "c", "a", "b_c", TEMPLATES[0])
@example("a", "b c", "", "", TEMPLATES[0])
def test_no_two_names_become_one(a: str, b: str, c: str, d: str, template: str) -> None:
    made, (start, _, end) = metric_name(template, a, b), metric_name(template, a, b).rpartition("_")
    for pair in ((c, d), (start, end)):  # nor does a name that was made stand for one like it
        assert (metric_name(template, *pair) == made) == (pair == (a, b))
    for name in (c, label_name(a)):
        assert (label_name(name) == label_name(a)) == (name == a)
    for text in (c, label_value(a)):
        assert (label_value(text) == label_value(a)) == (text == a)
    assert label_value(a) and not label_name(a).startswith("__")


def test_keys_of_bytes_are_told_apart(taker: Taker) -> None:
    table = rows(["x"] * 3, [1.0, 2.0, 3.0])
    table = table.set_column(0, "user", pa.array([b"\xff", b"\\xff", b"x"], pa.binary()))
    PrometheusSink(url=taker.url).write(delivery({"q": table}))
    found = [labels["user"] for labels, _ in series(taker.posted[0])]
    assert found == ["\\xff", "\\x5c786666", "x"]


def test_a_metric_without_the_query_or_the_column(taker: Taker) -> None:
    made = delivery({"a": rows(["x"], [1.0]), "b": rows([], [])})
    with pytest.raises(SinkError) as caught:
        PrometheusSink(url=taker.url, metric="load").write(made)
    assert str(caught.value) == (
        "two columns are one metric, 'load' (given: 'sum(v)' of 'a' and 'sum(v)' of 'b', by "
        "metric: load); put {query} and {column} into metric"
    )
    assert not taker.posted
    PrometheusSink(url=taker.url, metric="load").write(delivery({"a": rows(["x"], [1.0])}))
    assert [labels["__name__"] for labels, _ in series(taker.posted[0])] == ["load"]


def test_samples_that_are_too_old_are_found_and_left_out(
    taker: Taker, caplog: pytest.LogCaptureFixture
) -> None:
    """The server refuses every request that has the sample 3; the others must get through."""
    table = rows([f"u{n}" for n in range(8)], [float(n) for n in range(8)])
    old = (400, "out of order sample", {})
    fine = (204, "", {})
    # 0-7 refused; 0-3 refused; 0-1 taken; 2-3 refused; 2 taken; 3 refused; 4-7 taken
    taker.answers = [old, old, fine, old, fine, old, fine]
    with caplog.at_level(logging.WARNING):
        PrometheusSink(url=taker.url).write(delivery({"q": table}))
    sizes = [len(series(one)) for one in taker.posted]
    assert sizes == [8, 4, 2, 2, 1, 1, 4]
    assert "1 of 8 samples were refused as too old" in caplog.text
    taker.answers = [old]
    with pytest.raises(SinkError, match=r"refuses results with HTTP 400 .*out of order sample"):
        PrometheusSink(url=taker.url, refused="error").write(delivery({"q": table}))
    taker.answers = [(400, "label name is bad", {})]
    with pytest.raises(SinkError, match=r"refuses results with HTTP 400 .*label name is bad"):
        PrometheusSink(url=taker.url).write(delivery({"q": table}))


def asked(prometheus: servers.PrometheusServer, query: str) -> dict[str, str]:
    """What a query of PromQL gives now, by the label user."""
    address = f"{prometheus.url}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        found = json.loads(answer.read())["data"]["result"]
    return {one["metric"].get("user", ""): one["value"][1] for one in found}


def now_delivery(batch: int, back: int, value: float, name: str = "real") -> Delivery:
    """Two windows, of which the last ended `back` seconds ago, for two users."""
    end = int(time.time()) - back
    bounds = {
        "window_start": pa.array([(end - 2) * 10**6] * 2 + [(end - 1) * 10**6] * 2),
        "window_end": pa.array([(end - 1) * 10**6] * 2 + [end * 10**6] * 2),
    }
    times = {name: column.cast(pa.timestamp("us", "UTC")) for name, column in bounds.items()}
    table = pa.table({"user": ["x", "y"] * 2, **times, "n": [value, value, value + 1, value + 1]})
    return delivery({name: table}, batch)


def test_a_real_prometheus_takes_samples_once(prometheus: servers.PrometheusServer) -> None:
    sink = PrometheusSink(url=f"{prometheus.url}/api/v1/write")
    sink.check()
    made = now_delivery(0, 20, 5.0)
    sink.write(made)
    sink.write(made)  # it comes again after a crash: the older window is refused, and left out
    assert asked(prometheus, "real:n") == {"x": "6", "y": "6"}
    assert asked(prometheus, "count_over_time(real:n[5m])") == {"x": "2", "y": "2"}
    sink.write(now_delivery(1, 10, 8.0))
    assert asked(prometheus, "real:n") == {"x": "9", "y": "9"}
    assert asked(prometheus, "count_over_time(real:n[5m])") == {"x": "4", "y": "4"}
    with pytest.raises(SinkError, match="refuses results with HTTP 404"):
        PrometheusSink(url=f"{prometheus.url}/wrong").check()


def test_what_is_sent_while_prometheus_is_away_gets_through(
    prometheus: servers.PrometheusServer,
) -> None:
    prometheus.stop()
    sink = PrometheusSink(url=f"{prometheus.url}/api/v1/write", timeout=f"{PATIENCE:.0f}s")
    writing = threading.Thread(target=sink.write, args=(now_delivery(2, 2, 11.0, "away"),))
    writing.start()
    time.sleep(1)
    assert writing.is_alive()
    prometheus.start()
    writing.join(PATIENCE)
    assert not writing.is_alive()
    assert asked(prometheus, "away:n")["x"] == "12"
