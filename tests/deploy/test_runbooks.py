"""Every alert leads to a paragraph that says what to do."""

import re

import yaml

from support.charts.charts import CHART, ROOT

_NOT_IN_ANCHORS = re.compile(r"[^a-z0-9 -]")


def anchors(path):
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), flags=re.MULTILINE)
    return {_NOT_IN_ANCHORS.sub("", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_alert_has_a_paragraph():
    rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    assert alerts
    for alert in alerts:
        path, _, anchor = alert["annotations"]["runbook"].partition("#")
        assert anchor in anchors(path), alert["alert"]
        assert f"`{alert['alert']}`" in (ROOT / path).read_text(), alert["alert"]
