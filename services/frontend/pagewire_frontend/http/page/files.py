"""Reads the files of the pages from the package, and answers requests for them with an ETag."""

import hashlib
from dataclasses import dataclass
from importlib import resources

from fastapi import Response

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
# Everything comes from this server, and nothing is inline: a text of a model cannot become code.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file, with its media type and the ETag of its content."""

    content: bytes
    media_type: str
    etag: str

    def answer(self, if_none_match: str | None) -> Response:
        """Return the file, or 304 where the browser has it already.

        Args:
            if_none_match: The header of that name.
        """
        headers = {
            "etag": self.etag,
            # A browser asks again each time: a new version of the server has other files.
            "cache-control": "no-cache",
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
        }
        if self.media_type.startswith("text/html"):
            headers |= {"content-security-policy": _POLICY, "vary": "accept"}
        if self.etag in (if_none_match or ""):
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


def load_files() -> dict[str, PageFile]:
    """Return the files by name."""
    found = {}
    for entry in resources.files("pagewire_frontend.http.page").joinpath("static").iterdir():
        media_type = _TYPES.get(entry.name.rpartition(".")[2])
        if media_type is not None:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[entry.name] = PageFile(content, media_type, etag)
    return found
