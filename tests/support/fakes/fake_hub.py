"""A model hub with one repository, as huggingface_hub asks for it."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def running_hub(repository: str, folder: Path) -> Iterator[str]:
    """Serve the files of a folder as a repository such as "org/name"; yield the hub's URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(has_body=False)

        def do_GET(self) -> None:
            self._answer(has_body=True)

        def _answer(self, *, has_body: bool) -> None:
            path = self.path.partition("?")[0]
            if path.startswith(f"/api/models/{repository}/revision/"):
                files = [{"rfilename": file.name} for file in sorted(folder.iterdir())]
                found: Any = {"id": repository, "sha": COMMIT, "siblings": files}
                self._send(200, json.dumps(found).encode(), has_body)
            elif path.startswith(f"/api/models/{repository}/tree/"):
                tree = [
                    {"type": "file", "path": one.name, "size": one.stat().st_size, "oid": COMMIT}
                    for one in sorted(folder.iterdir())
                ]
                self._send(200, json.dumps(tree).encode(), has_body)
            elif path.startswith(f"/{repository}/resolve/"):
                self._send(200, (folder / path.rpartition("/")[2]).read_bytes(), has_body)
            else:
                self._send(404, b"{}", has_body)

        def _send(self, status: int, body: bytes, has_body: bool) -> None:
            self.send_response(status)
            self.send_header("etag", f'"{hashlib.sha1(body).hexdigest()}"')
            self.send_header("x-repo-commit", COMMIT)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if has_body:
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
