"""Whether the bands of the dashboard's first panel are what they say, and add up to what is resident: a test for promtool."""

import json
import subprocess

# Of each group what is resident and cannot be observed, what was accessed within 10 s, and what has been idle, as far as that is known.
GROUPS = {
    "/old": (1000, 50, 300, {10: 650, 60: 500, 300: 400, 900: 400, 3600: 200, 14400: 100, 28800: 0}),
    # Watched for a minute.
    "/young": (500, 0, 100, {10: 390, 30: 380, 60: 350}),
    # Known from a minute on only, and not at 5 min.
    "/open": (700, 20, None, {60: 400, 900: 300}),
    # Nothing is known yet.
    "/new": (200, 10, None, {}),
}
BANDS = {
    "idle 4 h and longer": 100,
    "idle 1 h to 4 h": 100,
    "idle 15 min to 1 h": 200 + 300,
    "idle 5 min to 15 min": 0,
    "idle 1 min to 5 min": 100 + 350 + 100,
    "idle 10 s to 1 min": 150 + 40,
    "accessed within 10 s": 300 + 100,
    "not known": 10 + 280 + 190,
    "cannot be observed": 50 + 20 + 10,
}


def series():
    """What is scraped."""
    for cgroup, (resident, blind, used, idle) in GROUPS.items():
        labels = f'instance="a",cgroup="{cgroup}"'
        yield f"isotherm_memory_resident_bytes{{{labels}}}", resident
        yield f"isotherm_memory_unobservable_bytes{{{labels}}}", blind
        if used is not None:
            yield f'isotherm_memory_working_set_bytes{{{labels},window_seconds="10"}}', used
        for age, size in idle.items():
            yield f'isotherm_memory_idle_bytes{{{labels},min_age_seconds="{age}"}}', size


def check(panel, expressions, folder, results):
    """All of it; `expressions` are the panel's, in the order of its targets."""
    names = [target["legendFormat"] for target in panel["targets"]]
    total = sum(resident for resident, *_ in GROUPS.values())
    results.check(names == list(BANDS) and sum(BANDS.values()) == total, f"the bands: {', '.join(names)}")
    queries = [{"expr": expr, "eval_time": "1m", "exp_samples": [{"labels": "{}", "value": BANDS.get(name)}]}
               for name, expr in zip(names, expressions)]  # fmt: skip
    given = [{"series": name, "values": f"{value}x5"} for name, value in series()]
    path = f"{folder}/bands.yml"
    with open(path, "w") as f:
        json.dump({"tests": [{"interval": "1m", "input_series": given, "promql_expr_test": queries}]}, f)
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True)
    results.check(done.returncode == 0, f"they add up to what is resident: {(done.stdout + done.stderr).strip()}")
