"""The parameters of a scheme, learned from runs of a program that `isotherm tune` cannot start itself."""

import json
import os
import shutil
import subprocess
import sys


def learn(name, run, isotherm, line, wish, runs, folder):
    """Lets `isotherm tune --propose` say what to run next until it has seen enough.

    `run`: runs the program under these arguments of isotherm and returns its figures. `wish`: what is wanted, as arguments of
    `isotherm tune`, with at most `runs` runs. Returns the answer at the end, whose
    `scheme` is the file of the best scheme, or None where none keeps to the limit; and all runs with what they were.
    """
    history = os.path.join(folder, f"{name}-history.jsonl")
    scheme = os.path.join(folder, f"{name}-next.toml")
    command = [isotherm, "tune", "--scheme", line, *wish, "--history", history, "-o", scheme, "--propose"]
    made, recorded = [], []
    while True:
        done = subprocess.run([*command, *recorded, "--", name], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode == 1 and len(made) == runs:
            return None, made
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed (status {done.returncode}):\n{done.stderr}")
        answer = json.loads(done.stdout)
        if answer["do"] == "done":
            return answer, made
        ran = [] if answer["do"] == "alone" else ["--ran", scheme]
        print(f"\r{name}: run {answer['run']} of {runs}, {words(answer):20}", end="", file=sys.stderr, flush=True)
        # A copy: isotherm reads its file while it runs.
        used = shutil.copy(scheme, os.path.join(folder, f"{name}-now.toml")) if ran else None
        figures = run(["schemes", "-c", used] if used else [])
        made.append({"what": words(answer), **figures})
        recorded = ["--record", f"{figures['seconds']:.6f},{int(figures['rss'])}", *ran]


def words(answer):
    """What is run, for people."""
    parameters = answer.get("parameters")
    return f"{parameters['min_age_us'] / 1e6:g} s" if parameters else "alone"
