-- The rows of `isotherm node`'s files (table `files`) as DuckDB reads them: lists are spread into columns. Entry i of a list
-- is for the i-th of 0, 1, 2, 5, 10, 30 s, 1, 2, 4, 8, 15, 30 min, 1, 2, 4, 8 h. Lists begin at 1.
-- A host is one of its cluster: others may have hosts of the same name.
CREATE VIEW windows AS
SELECT
    epoch_us(window_start) AS start_us,
    epoch_us(window_start) // 1000000 AS start_s,
    window_s, COALESCE(files.cluster || '/' || files.host, files.host) AS host, files.cluster AS cluster_name, boot_id, cgroup, inode, namespace,
    COALESCE(namespace || '/' || container, container, cgroup) AS job,
    resident_bytes, swapped_bytes, unobservable_bytes, accessed_bytes,
    cold_bytes[1] AS cold_0, cold_bytes[2] AS cold_1, cold_bytes[3] AS cold_2, cold_bytes[4] AS cold_3,
    cold_bytes[5] AS cold_4, cold_bytes[6] AS cold_5, cold_bytes[7] AS cold_6, cold_bytes[8] AS cold_7,
    cold_bytes[9] AS cold_8, cold_bytes[10] AS cold_9, cold_bytes[11] AS cold_10, cold_bytes[12] AS cold_11,
    cold_bytes[13] AS cold_12, cold_bytes[14] AS cold_13, cold_bytes[15] AS cold_14, cold_bytes[16] AS cold_15,
    promoted_bytes[1] AS promoted_0, promoted_bytes[2] AS promoted_1, promoted_bytes[3] AS promoted_2, promoted_bytes[4] AS promoted_3,
    promoted_bytes[5] AS promoted_4, promoted_bytes[6] AS promoted_5, promoted_bytes[7] AS promoted_6, promoted_bytes[8] AS promoted_7,
    promoted_bytes[9] AS promoted_8, promoted_bytes[10] AS promoted_9, promoted_bytes[11] AS promoted_10, promoted_bytes[12] AS promoted_11,
    promoted_bytes[13] AS promoted_12, promoted_bytes[14] AS promoted_13, promoted_bytes[15] AS promoted_14, promoted_bytes[16] AS promoted_15,
    source, monitor_cpu_us, target_cost_us, kernel, isotherm_version
FROM files
