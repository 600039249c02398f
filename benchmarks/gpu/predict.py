"""What the first run on a card is expected to show: rows 1 to 12 of the goals, without a device.

    python benchmarks/gpu/predict.py --card h200
    python benchmarks/gpu/predict.py --card h200 --json FILE
    python benchmarks/gpu/predict.py --card h200 --seen FILE
    python benchmarks/gpu/predict.py --measure-host        # or --show-host, what is kept

A step on the device is the sum of its kernels: each takes the longer of its bytes at the rate that
it reaches and its operations at that, and a little to begin and end; between two is a gap. The host
takes Python's time and something for every launch, copy and operator. Steps are launched ahead, so
that the longer of both counts; a prompt at an idle server waits for what is around them as well.
The job is all its prompts and then its 1,023 steps, one by one; served, a step also waits for the
scheduler, as far as a second step under way does not hide that.

Rates and overheads are assumptions (prediction/costs.py): the range of a row is what the best and
the worst of them give. What the host takes was measured once, over a device that does nothing, and
is kept in prediction/host_figures.json; --measure-host measures it anew, in a minute or two, and
needs no GPU. --seen compares: FILE holds a number for each row that was measured, as
{"1": 23000, "6": 6.9}.
"""

import argparse
import json
from pathlib import Path

from prediction.cards import CARDS
from prediction.host_figures import PATH, load
from prediction.rows import predict
from prediction.table import against, all_cards, as_json, host_table, markdown, source


def main() -> None:
    """Print tables, or write a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--card", choices=[*CARDS, "all"], default="h200")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there instead")
    parser.add_argument("--seen", type=Path, metavar="FILE", help="compare with what was measured")
    parser.add_argument(
        "--host", type=Path, default=PATH, metavar="FILE", help="the host's figures"
    )
    parser.add_argument("--measure-host", action="store_true", help="measure these, and keep them")
    parser.add_argument("--show-host", action="store_true", help="print what is kept of them")
    arguments = parser.parse_args()
    if arguments.measure_host:
        # Needs torch and the worker; predictions need neither.
        from prediction.measure_host import measure_host

        measure_host(arguments.host)
    figures = load(arguments.host)
    if arguments.measure_host or arguments.show_host:
        print(f"{figures.machine}, {figures.date}\n\n{host_table(figures)}")
        return
    if arguments.card == "all":
        if arguments.json or arguments.seen:
            parser.error("--json and --seen take one --card")
        print(all_cards({card.name: predict(card, figures) for card in CARDS.values()}))
        return
    card = CARDS[arguments.card]
    predictions = predict(card, figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(as_json(card, predictions), indent=1) + "\n")
    elif arguments.seen:
        seen = json.loads(arguments.seen.read_text())
        if unknown := [name for name in seen if name not in predictions]:
            parser.error(f"--seen: {', '.join(unknown)}: rows are 1 to 12")
        print(against(predictions, seen))
    else:
        print(f"{source(card, figures)}\n\n{markdown(predictions)}")


if __name__ == "__main__":
    main()
