"""What of a dashboard Grafana does not know: `lost.py FILE` reads it by Grafana's own types, writes it again, and prints what differs."""

import json
import sys

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard


def lost(before, after, path=""):
    """Paths of values that are not the same after."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from lost(value, after[key], f"{path}/{key}") if key in after else [f"{path}/{key}"]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, pair in enumerate(zip(before, after)):
            yield from lost(*pair, f"{path}/{at}")
    elif before != after:
        yield path


def main():
    plugins.register_default_plugins()
    with open(sys.argv[1]) as f:
        dashboard = json.load(f)
    written = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(dashboard)))
    found = list(lost(dashboard, written))
    print(*found, sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
