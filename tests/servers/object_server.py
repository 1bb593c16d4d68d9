"""A server of S3's protocol: S3Proxy over a folder, its jar from Maven Central."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pyarrow.fs as pafs

from catchment.measure.ports import HOST, free_port

JARS = Path(__file__).resolve().parents[2] / "build" / "s3"
_VERSION = "4.1.0"
_JAR = JARS / f"s3proxy-{_VERSION}-jar-with-dependencies.jar"
_ARTIFACT = f"org.gaul:s3proxy:{_VERSION}:jar:jar-with-dependencies"
_PATIENCE = 240.0
_SETTINGS = """\
s3proxy.endpoint=http://{host}:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity=key
s3proxy.credential=secret-of-tests
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={data}
"""


@dataclass(frozen=True)
class ObjectServer:
    """Where it answers, and who may ask."""

    port: int
    key: str = "key"
    secret: str = "secret-of-tests"
    bucket: str = "bucket"

    def uri(self, path: str) -> str:
        """A folder in the bucket, as Arrow is told of it."""
        there = quote(f"{HOST}:{self.port}", safe="")
        return (
            f"s3://{self.key}:{self.secret}@{self.bucket}/{path}?scheme=http&region=us-east-1"
            f"&endpoint_override={there}"
        )

    def settings(self) -> dict[str, str]:
        """What Spark is told of it."""
        s3a = {
            "endpoint": f"http://{HOST}:{self.port}",
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "access.key": self.key,
            "secret.key": self.secret,
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()}


def missing_objects() -> str | None:
    """Why there is none: Maven brings it when it is first asked for."""
    if not _JAR.exists() and shutil.which("mvn") is None:
        return "no server of objects (its jar comes with Maven: apt install maven, and a network)"
    return None


def _fetch() -> None:
    if _JAR.exists():
        return
    command = ["mvn", "-B", "-q", "dependency:copy", f"-Dartifact={_ARTIFACT}"]
    subprocess.run([*command, f"-DoutputDirectory={JARS}"], check=True, timeout=600)


@contextmanager
def objects(folder: Path) -> Iterator[ObjectServer]:
    """A server that keeps objects as files in a folder, and has one bucket."""
    _fetch()
    made = ObjectServer(free_port())
    (folder / "data").mkdir(parents=True)
    settings = folder / "settings"
    settings.write_text(_SETTINGS.format(host=HOST, port=made.port, data=folder / "data"))
    with (folder / "log").open("wb") as log:
        command = ["java", "-Xmx256m", "-jar", str(_JAR), "--properties", str(settings)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + _PATIENCE
        while not _has_bucket(made):
            assert process.poll() is None and time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.1)
        yield made
    finally:
        process.kill()
        process.wait()


def _has_bucket(server: ObjectServer) -> bool:
    system = pafs.S3FileSystem(
        access_key=server.key,
        secret_key=server.secret,
        endpoint_override=f"{HOST}:{server.port}",
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=1),
    )
    try:
        system.create_dir(server.bucket)
    except OSError:
        return False
    return True
