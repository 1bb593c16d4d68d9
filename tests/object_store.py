"""A store of objects that speaks enough of S3 for Arrow: objects in memory, nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4
from xml.sax.saxutils import escape

_SAYS = '<?xml version="1.0" encoding="UTF-8"?>'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]
    parts: dict[str, dict[int, bytes]]
    guard: threading.Lock

    def log_message(self, format: str, *args: object) -> None:
        return

    def _asked(self) -> tuple[str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        return unquote(parts.path).lstrip("/"), parse_qs(parts.query, keep_blank_values=True)

    def _say(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return body
        whole, at = b"", 0
        while size := int(body[at : body.index(b"\r\n", at)].split(b";")[0], 16):
            at = body.index(b"\r\n", at) + 2
            whole += body[at : at + size]
            at += size + 2
        return whole

    def do_PUT(self) -> None:
        name, query = self._asked()
        body, copied = self._body(), b""
        with self.guard:
            if "uploadId" in query:
                self.parts[query["uploadId"][0]][int(query["partNumber"][0])] = body
            elif "x-amz-copy-source" in self.headers:
                source = unquote(self.headers["x-amz-copy-source"]).strip("/")
                self.objects[name] = self.objects[source]
                copied = f"{_SAYS}<CopyObjectResult><ETag>x</ETag></CopyObjectResult>".encode()
            elif name.partition("/")[2]:
                self.objects[name] = body
        self._say(200, copied, ETag='"x"')

    def do_POST(self) -> None:
        name, query = self._asked()
        self._body()
        bucket, _, key = name.partition("/")
        with self.guard:
            if "uploads" in query:
                upload = uuid4().hex  # never that of another: uploads end while others begin
                self.parts[upload] = {}
                said = (
                    f"{_SAYS}<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket>"
                    f"<Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
                    "</InitiateMultipartUploadResult>"
                )
            else:
                held = self.parts.pop(query["uploadId"][0])
                self.objects[name] = b"".join(held[n] for n in sorted(held))
                said = (
                    f"{_SAYS}<CompleteMultipartUploadResult><Bucket>{bucket}</Bucket>"
                    f"<Key>{escape(key)}</Key><ETag>x</ETag></CompleteMultipartUploadResult>"
                )
        self._say(200, said.encode())

    def do_GET(self) -> None:
        name, query = self._asked()
        if "list-type" in query:
            return self._list(name.strip("/"), query)
        with self.guard:
            body = self.objects.get(name)
        if body is None:
            said = f"{_SAYS}<Error><Code>NoSuchKey</Code><Message>no</Message></Error>"
            return self._say(404, said.encode())
        if "Range" in self.headers and self.command == "GET":
            low, _, high = self.headers["Range"].removeprefix("bytes=").partition("-")
            piece = body[int(low) : int(high) + 1]
            return self._say(206, piece, Content_Range=f"bytes {low}-{high}/{len(body)}")
        return self._say(200, body, Content_Length=str(len(body)), ETag='"x"')

    def do_HEAD(self) -> None:
        name, _ = self._asked()
        if not name.partition("/")[2]:
            return self._say(200)
        return self.do_GET()

    def _list(self, bucket: str, query: dict[str, list[str]]) -> None:
        prefix = query.get("prefix", [""])[0]
        with self.guard:
            names = sorted(n.partition("/")[2] for n in self.objects if n.startswith(bucket + "/"))
            sizes = {n: len(self.objects[f"{bucket}/{n}"]) for n in names}
        files, folders = [], set()
        for name in names:
            if name.startswith(prefix):
                head, slash, _ = name[len(prefix) :].partition("/")
                if slash and "delimiter" in query:
                    folders.add(prefix + head + "/")
                else:
                    files.append(name)
        contents = "".join(
            f"<Contents><Key>{escape(n)}</Key><Size>{sizes[n]}</Size></Contents>" for n in files
        )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(n)}</Prefix></CommonPrefixes>" for n in folders
        )
        said = (
            f"{_SAYS}<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(files) + len(folders)}</KeyCount><IsTruncated>false</IsTruncated>"
            f"{contents}{common}</ListBucketResult>"
        )
        self._say(200, said.encode())

    def do_DELETE(self) -> None:
        name, query = self._asked()
        with self.guard:
            if "uploadId" in query:
                self.parts.pop(query["uploadId"][0], None)
            else:
                self.objects.pop(name, None)
        self._say(204)


@contextmanager
def object_store() -> Iterator[str]:
    """A URI of a folder in a store of objects, as long as it runs."""
    shared = {"objects": {}, "parts": {}, "guard": threading.Lock()}
    handler = type("Handler", (_Handler,), shared)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        port = server.server_address[1]
        yield (
            f"s3://key:secret@bucket/jobs/one?scheme=http&region=us-east-1"
            f"&endpoint_override=127.0.0.1%3A{port}"
        )
    finally:
        server.shutdown()
        server.server_close()
