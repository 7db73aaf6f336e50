"""Runs one policy of libCacheSim over an oracleGeneral file: TRACE POLICY OBJECTS. Prints a line of JSON."""

import json
import sys
import time

import libcachesim


def anonymous():
    """Anonymous memory of this process, bytes. The file is mapped, and not counted."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


trace, policy, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
before = anonymous()
start = time.monotonic()
parameters = libcachesim.ReaderInitParam(ignore_obj_size=True)
reader = libcachesim.TraceReader(
    trace=trace, trace_type=libcachesim.TraceType.ORACLE_GENERAL_TRACE, reader_init_params=parameters
)
cache = getattr(libcachesim, policy)(size)
misses, _ = cache.process_trace(reader)
seconds = time.monotonic() - start
memory = anonymous() - before
requests = reader.get_num_of_req()
print(json.dumps({"misses": round(misses * requests), "requests": requests, "seconds": seconds, "memory": memory}))
