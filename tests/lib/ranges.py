"""Sorted, disjoint lists of half-open address ranges [(start, end), ...]."""

PAGE = 4096
MIB = 1 << 20


def normalize(ranges):
    """Sorts, drops empty ranges, joins those that overlap or touch."""
    out = []
    for start, end in sorted(r for r in ranges if r[0] < r[1]):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def length(ranges):
    """Bytes in total."""
    return sum(end - start for start, end in ranges)


def intersect(a, b):
    """What two lists have in common."""
    out, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            out.append((start, end))
        if a[i][1] <= b[j][1]:
            i += 1
        else:
            j += 1
    return out


def subtract(a, b):
    """What is in `a` and not in `b`."""
    out = []
    for start, end in a:
        for first, last in intersect([(start, end)], b):
            if start < first:
                out.append((start, first))
            start = last
        if start < end:
            out.append((start, end))
    return out
