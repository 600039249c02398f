"""Types of the parts of a message, in the words of OpenAI, vLLM and transformers. Only text is
served."""

from collections.abc import Mapping
from typing import Final

TEXT_PARTS: Final = ("text", "input_text", "output_text")

_WHAT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("image", "image_embeds", "image_pil", "image_url", "input_image"), "images"),
    **dict.fromkeys(("input_video", "video", "video_url"), "videos"),
    **dict.fromkeys(("audio", "audio_embeds", "audio_url", "input_audio"), "audio parts"),
    **dict.fromkeys(("file", "input_file"), "files"),
    "refusal": "refusal parts",
}


def refused_part(kind: str) -> str:
    """Return why a part of a type that is not text is refused, and what is taken instead."""
    what = _WHAT.get(kind, f"parts of type {kind[:64]!r}")
    return f"{what} are not supported; only text parts"
