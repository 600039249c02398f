"""Reads the config.json of native models. models/variants.py says which decoder computes each."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pagewire_shared.model_files.config import read_config
from pagewire_worker.families.fields import UnsupportedModelError
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.families.registry import FAMILIES
from pagewire_worker.models.forms import CheckpointForm, form_of


def read_plan(folder: Path) -> ModelPlan:
    """Return the plan of the checkpoint in `folder`. Raises StartupError naming the fault."""
    return native_plan(read_config(folder))


def native_plan(data: Mapping[str, Any]) -> ModelPlan:
    """Return the plan in the content of a config.json.

    Raises:
        UnsupportedModelError: The native decoder does not compute this model.
        StartupError: The content is broken.
    """
    form = native_form(data)
    plan = replace(FAMILIES[form.family].read(data), architecture=form.family)
    if form.has_logits:
        return plan
    # Without a matrix for logits, that of the embeddings stands in its place, unused.
    return replace(plan, logits=replace(plan.logits, name=None))


def native_form(data: Mapping[str, Any]) -> CheckpointForm:
    """Return the form of a native model. Raises UnsupportedModelError for other architectures."""
    form = form_of(data, tuple(FAMILIES))
    if form is not None:
        return form
    names = data.get("architectures") or []
    shown = ", ".join(map(str, names)) if names else "none"
    raise UnsupportedModelError(
        f"config.json: architecture {shown} is not supported, only {', '.join(FAMILIES)}",
        field="model",
    )
