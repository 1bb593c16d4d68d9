"""How property tests run, and the servers that tests may ask for.

CATCHMENT_EXAMPLES says how many examples a property test tries; none has a time limit. With
CATCHMENT_SHRINK one that fails is made small, which may take longer than a test may.
"""

from __future__ import annotations

import gc
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from xdist.scheduler import LoadScopeScheduling

import servers
from catchment.native import compiled, library, without_kernels
from catchment.native.build import build
from sharing import SERVERS, server_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer

UNWANTED = {Phase.explain} if "CATCHMENT_SHRINK" in os.environ else {Phase.shrink, Phase.explain}

# `make soak` raises the number. A test that pins `max_examples` would not follow it; one that needs
# fewer writes `@settings(max_examples=settings.default.max_examples // 4)`.
settings.register_profile(
    "catchment",
    max_examples=int(os.environ.get("CATCHMENT_EXAMPLES", "25")),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[phase for phase in Phase if phase not in UNWANTED],
)
settings.load_profile("catchment")

# The Java machines of tests live for a minute or two: compiling what they run as well as can be
# would take longer than it saves.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="module", params=["numpy", "compiled"])
def loops(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the tests of a module twice: by NumPy alone, and with compiled loops for any rows."""
    if request.param == "numpy":
        with without_kernels():
            yield "numpy"
        return
    said = build()
    if compiled() is None:
        pytest.skip(said)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "LEAST_ROWS", 1)
        yield "compiled"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules and tests live to the end: nothing looks among them for what may be freed."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Says who needs a server, before marks are chosen by, and what is for the soak alone; lets
    what takes longest begin first, after the order was drawn."""
    for item in items:
        if _marked(item, "soak") and "CATCHMENT_SOAK" not in os.environ:
            item.add_marker(pytest.mark.skip(reason="runs in `make soak`"))
        if set(SERVERS) & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.servers)
    yield
    items.sort(key=lambda item: not (_marked(item, "slow") or _marked(item, "spark")))


class BySharedServer(LoadScopeScheduling):
    """Hands tests to workers one by one, and tests that use the same server to one worker.

    A server, or a session of Spark, is then started once, and Java compiles what they run once.
    """

    def _split_scope(self, nodeid: str) -> str:
        return server_of(nodeid) or nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> BySharedServer:
    return BySharedServer(config, log)


def _marked(item: pytest.Item, name: str) -> bool:
    return item.get_closest_marker(name) is not None


collect_ignore = ["plugin_package"]  # a package of its own, which test_extensions.py installs

Started = TypeVar("Started")
Factory = pytest.TempPathFactory


# One server per worker, started when a test first asks for it. A test that takes one down brings
# it back.


CONNECT = "CATCHMENT_TEST_CONNECT"


def _classic() -> SparkSession:
    from catchment.spark.session import session

    return session(cores=2)


def _connected() -> SparkSession:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    from catchment.spark.session import settings as session_settings
    from catchment.spark.session import use_worker_python

    use_worker_python(local=True)
    # PySpark's port is always the same one, which another server on this machine may have.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    setattr(DefaultChannelBuilder, "default_port", staticmethod(lambda: port))  # noqa: B010
    builder = SparkSession.builder.remote("local[2]")
    builder = builder.config("spark.connect.grpc.binding.port", str(port))
    for name, value in session_settings(cores=2).items():
        builder = builder if name == "spark.master" else builder.config(name, value)
    with warnings.catch_warnings():
        # The server is started with all of them; the session cannot change some once more.
        warnings.simplefilter("ignore")
        made: SparkSession = builder.getOrCreate()
    return made


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: Factory) -> Iterator[servers.Kafka]:
    yield from _running("kafka", servers.kafka, tmp_path_factory)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: Factory) -> Iterator[servers.Postgres]:
    yield from _running("postgres", servers.postgres, tmp_path_factory)


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: Factory) -> Iterator[servers.Mosquitto]:
    yield from _running("mosquitto", servers.mosquitto, tmp_path_factory)


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: Factory) -> Iterator[servers.PrometheusServer]:
    yield from _running("prometheus", servers.prometheus, tmp_path_factory)


def _running(
    name: str, run: Callable[[Path], AbstractContextManager[Started]], folders: Factory
) -> Iterator[Started]:
    if why := servers.missing(name):
        pytest.skip(why)
    with run(folders.mktemp(name)) as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local session a worker, started when a test first asks for it.

    A process has sessions of Spark itself or of Spark Connect, never both: `test_spark_connect.py`
    runs the tests that are marked `connect` once more in a process that has this variable.
    """
    made = _connected() if CONNECT in os.environ else _classic()
    made.conf.set("spark.sql.shuffle.partitions", "2")
    yield made
    made.stop()
