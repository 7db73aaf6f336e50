"""Ctrl-C and kill end a program through its clean-up: what it started is stopped, what it set is set back."""

import signal
import sys

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def on_signals():
    """From here on; also where a shell without job control has put the program in the background."""
    for number in _SIGNALS:
        signal.signal(number, _end)


def _end(number, _):
    # A second signal would interrupt the clean-up.
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)
