"""/openapi.json and /docs."""

from fastapi import FastAPI


def install_description(app: FastAPI, *, are_keys_required: bool) -> None:
    """Placeholder"""
