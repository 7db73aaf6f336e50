-- What each job held on each machine: sums over windows. Bytes are not multiplied by seconds here, which would not fit into 64
-- bits for large machines: windows of each length (`window_s`) have a row of their own. So have windows in which other figures were
-- known, so that a sum is either of all windows of its row or null: the first `known` entries of `cold` and `known_promoted` of
-- `promoted` have a value; `known_sizes` adds 1 for `resident_bytes`, 2 for `swapped_bytes`, 4 for `unobservable_bytes`, 8 for
-- `accessed_bytes`.
SELECT
    host, cluster_name, namespace, job, window_s,
    CASE
        WHEN cold_15 IS NOT NULL THEN 16
        WHEN cold_14 IS NOT NULL THEN 15
        WHEN cold_13 IS NOT NULL THEN 14
        WHEN cold_12 IS NOT NULL THEN 13
        WHEN cold_11 IS NOT NULL THEN 12
        WHEN cold_10 IS NOT NULL THEN 11
        WHEN cold_9 IS NOT NULL THEN 10
        WHEN cold_8 IS NOT NULL THEN 9
        WHEN cold_7 IS NOT NULL THEN 8
        WHEN cold_6 IS NOT NULL THEN 7
        WHEN cold_5 IS NOT NULL THEN 6
        WHEN cold_4 IS NOT NULL THEN 5
        WHEN cold_3 IS NOT NULL THEN 4
        WHEN cold_2 IS NOT NULL THEN 3
        WHEN cold_1 IS NOT NULL THEN 2
        WHEN cold_0 IS NOT NULL THEN 1
        ELSE 0
    END AS known,
    CASE
        WHEN promoted_15 IS NOT NULL THEN 16
        WHEN promoted_14 IS NOT NULL THEN 15
        WHEN promoted_13 IS NOT NULL THEN 14
        WHEN promoted_12 IS NOT NULL THEN 13
        WHEN promoted_11 IS NOT NULL THEN 12
        WHEN promoted_10 IS NOT NULL THEN 11
        WHEN promoted_9 IS NOT NULL THEN 10
        WHEN promoted_8 IS NOT NULL THEN 9
        WHEN promoted_7 IS NOT NULL THEN 8
        WHEN promoted_6 IS NOT NULL THEN 7
        WHEN promoted_5 IS NOT NULL THEN 6
        WHEN promoted_4 IS NOT NULL THEN 5
        WHEN promoted_3 IS NOT NULL THEN 4
        WHEN promoted_2 IS NOT NULL THEN 3
        WHEN promoted_1 IS NOT NULL THEN 2
        WHEN promoted_0 IS NOT NULL THEN 1
        ELSE 0
    END AS known_promoted,
    CASE WHEN resident_bytes IS NULL THEN 0 ELSE 1 END + CASE WHEN swapped_bytes IS NULL THEN 0 ELSE 2 END
        + CASE WHEN unobservable_bytes IS NULL THEN 0 ELSE 4 END + CASE WHEN accessed_bytes IS NULL THEN 0 ELSE 8 END AS known_sizes,
    COUNT(*) AS windows,
    SUM(resident_bytes) AS resident_bytes,
    SUM(swapped_bytes) AS swapped_bytes,
    SUM(unobservable_bytes) AS unobservable_bytes,
    SUM(accessed_bytes) AS accessed_bytes,
    SUM(cold_0) AS cold_0, SUM(cold_1) AS cold_1, SUM(cold_2) AS cold_2, SUM(cold_3) AS cold_3,
    SUM(cold_4) AS cold_4, SUM(cold_5) AS cold_5, SUM(cold_6) AS cold_6, SUM(cold_7) AS cold_7,
    SUM(cold_8) AS cold_8, SUM(cold_9) AS cold_9, SUM(cold_10) AS cold_10, SUM(cold_11) AS cold_11,
    SUM(cold_12) AS cold_12, SUM(cold_13) AS cold_13, SUM(cold_14) AS cold_14, SUM(cold_15) AS cold_15,
    SUM(promoted_0) AS promoted_0, SUM(promoted_1) AS promoted_1, SUM(promoted_2) AS promoted_2, SUM(promoted_3) AS promoted_3,
    SUM(promoted_4) AS promoted_4, SUM(promoted_5) AS promoted_5, SUM(promoted_6) AS promoted_6, SUM(promoted_7) AS promoted_7,
    SUM(promoted_8) AS promoted_8, SUM(promoted_9) AS promoted_9, SUM(promoted_10) AS promoted_10, SUM(promoted_11) AS promoted_11,
    SUM(promoted_12) AS promoted_12, SUM(promoted_13) AS promoted_13, SUM(promoted_14) AS promoted_14, SUM(promoted_15) AS promoted_15
FROM windows
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
