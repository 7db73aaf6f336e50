"""Means of ratios, with how sure they are."""

import math
import statistics

# Two-sided 95 % quantiles of Student's t by degrees of freedom.
T95 = [None, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]


def interval(values):
    """Mean of ratios and the half width of its 95 % confidence interval, as shares."""
    logs = [math.log(v) for v in values]
    mean = math.exp(statistics.fmean(logs))
    if len(logs) < 2:
        return mean, None
    t = T95[min(len(logs) - 1, len(T95) - 1)]
    return mean, mean * (math.exp(t * statistics.stdev(logs) / math.sqrt(len(logs))) - 1)


def ratio_text(values):
    """Such a ratio for the table."""
    mean, half = interval(values)
    return f"{mean - 1:+.1%}" + ("" if half is None else f" ± {half:.1%}")
