"""Shows a metric under another name: the same samples with other labels. Samples whose labels
become equal are added up."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.metrics_core import Metric

_BUCKET: Final = "_bucket"
_CREATED: Final = "_created"


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """The rules that turn one metric into another.

    Attributes:
        source: Name of the metric that is measured, as prometheus-client names it: without _total.
        name: Name that it is shown under, likewise.
        labels: Labels that are shown, by the source's; others are left out and added up.
        words: Values of labels that have another word here; see `only`.
        only: Values of labels by the source's name; samples with others are left out.
        bounds: Upper bounds of the buckets that are shown, which the source has, too; all if empty.
    """

    source: str
    name: str
    text: str
    labels: Mapping[str, str]
    words: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, frozenset[str]] = field(default_factory=dict)
    bounds: tuple[float, ...] = ()

    def apply(self, source: Metric, constants: Mapping[str, str]) -> Metric:
        """Return `source` as it is shown, with `constants` as further labels."""
        shown = Metric(self.name, self.text, source.type)
        values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        for sample in source.samples:
            if not self._is_shown(sample.name, sample.labels):
                continue
            labels = {**self._labels(sample.labels), **constants}
            name = self.name + sample.name[len(self.source) :]
            key = name, tuple(labels.items())
            values[key] = values.get(key, 0.0) + sample.value
        for (name, items), value in values.items():
            shown.add_sample(name, dict(items), value)
        return shown

    def _is_shown(self, name: str, labels: Mapping[str, str]) -> bool:
        if name.endswith(_CREATED):
            return False
        if any(labels.get(label) not in values for label, values in self.only.items()):
            return False
        is_bucket = name == self.source + _BUCKET and bool(self.bounds)
        return not is_bucket or float(labels["le"]) in (*self.bounds, float("inf"))

    def _labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        shown = {
            theirs: self.words.get(labels[ours], labels[ours])
            for ours, theirs in self.labels.items()
        }
        return {**shown, **({"le": labels["le"]} if "le" in labels else {})}


def by_name(metrics: Iterable[Metric]) -> dict[str, Metric]:
    """Return metrics by their names."""
    return {metric.name: metric for metric in metrics}
