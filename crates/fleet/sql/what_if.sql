-- What a policy would have done: in each window a control group's pages are paged out that are idle for longer than a threshold,
-- which follows from the group's past. Entries 7 (2 min) to 15 (8 h) of the lists are thresholds, 16 is none.
--
-- * `best`: the smallest threshold at which no more than `rate` of what was accessed came back a minute in that window. Where none
--   of those that were watched for long enough is, it is the next one: at least that.
-- * The threshold in use: the K-th percentile of `best` in all windows before, or the last one where that was larger.
--
-- Tables: `windows`; `policy` of one row (`rate`; `split_s`: windows from then on are part 1, those before part 0; `warmup_1` to
-- `warmup_6` in s, ascending: `warmup` says how many of them the group had lived for); `percentiles` (`k`, 0 to 1). Bytes are sums
-- over windows of one length; `promoted_bytes` and `accessed_bytes` those over `judged` windows, for which both are known.
-- (Method: Lagar-Cavilla et al., "Software-defined far memory in warehouse-scale computers", ASPLOS 2019, section 4.)
WITH judged AS (
    SELECT
        host, boot_id, cgroup, inode, job, start_us, start_s, window_s, resident_bytes, accessed_bytes,
        cold_7, cold_8, cold_9, cold_10, cold_11, cold_12, cold_13, cold_14, cold_15,
        promoted_7, promoted_8, promoted_9, promoted_10, promoted_11, promoted_12, promoted_13, promoted_14, promoted_15,
        rate * accessed_bytes * window_s AS allowed,
        CASE WHEN start_s >= split_s THEN 1 ELSE 0 END AS part,
        warmup_1, warmup_2, warmup_3, warmup_4, warmup_5, warmup_6,
        CASE
            WHEN accessed_bytes IS NULL OR promoted_7 IS NULL THEN NULL
            WHEN promoted_7 * 60.0 <= rate * accessed_bytes * window_s THEN 7
            WHEN promoted_8 IS NULL OR promoted_8 * 60.0 <= rate * accessed_bytes * window_s THEN 8
            WHEN promoted_9 IS NULL OR promoted_9 * 60.0 <= rate * accessed_bytes * window_s THEN 9
            WHEN promoted_10 IS NULL OR promoted_10 * 60.0 <= rate * accessed_bytes * window_s THEN 10
            WHEN promoted_11 IS NULL OR promoted_11 * 60.0 <= rate * accessed_bytes * window_s THEN 11
            WHEN promoted_12 IS NULL OR promoted_12 * 60.0 <= rate * accessed_bytes * window_s THEN 12
            WHEN promoted_13 IS NULL OR promoted_13 * 60.0 <= rate * accessed_bytes * window_s THEN 13
            WHEN promoted_14 IS NULL OR promoted_14 * 60.0 <= rate * accessed_bytes * window_s THEN 14
            WHEN promoted_15 IS NULL OR promoted_15 * 60.0 <= rate * accessed_bytes * window_s THEN 15
            ELSE 16
        END AS best
    FROM windows CROSS JOIN policy
),
-- How many windows' best threshold is within each one: three counts of 20 bits in a number, so that there are fewer sums.
counted AS (
    SELECT
        *,
        CASE WHEN best <= 7 THEN 1 ELSE 0 END + CASE WHEN best <= 8 THEN 1048576 ELSE 0 END
            + CASE WHEN best <= 9 THEN 1099511627776 ELSE 0 END AS within_7,
        CASE WHEN best <= 10 THEN 1 ELSE 0 END + CASE WHEN best <= 11 THEN 1048576 ELSE 0 END
            + CASE WHEN best <= 12 THEN 1099511627776 ELSE 0 END AS within_10,
        CASE WHEN best <= 13 THEN 1 ELSE 0 END + CASE WHEN best <= 14 THEN 1048576 ELSE 0 END
            + CASE WHEN best <= 15 THEN 1099511627776 ELSE 0 END AS within_13
    FROM judged
),
past AS (
    SELECT
        *,
        SUM(within_7) OVER before AS past_7,
        SUM(within_10) OVER before AS past_10,
        SUM(within_13) OVER before AS past_13,
        COUNT(best) OVER before AS past,
        MIN(start_s) OVER before AS first_s,
        LAG(best) OVER (PARTITION BY host, boot_id, cgroup, inode ORDER BY start_us) AS last_best
    FROM counted
    WINDOW before AS (
        PARTITION BY host, boot_id, cgroup, inode ORDER BY start_us
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
decided AS (
    SELECT
        *,
        CASE
            WHEN past = 0 THEN NULL
            WHEN (past_7 & 1048575) >= k * past THEN 7
            WHEN ((past_7 >> 20) & 1048575) >= k * past THEN 8
            WHEN ((past_7 >> 40) & 1048575) >= k * past THEN 9
            WHEN (past_10 & 1048575) >= k * past THEN 10
            WHEN ((past_10 >> 20) & 1048575) >= k * past THEN 11
            WHEN ((past_10 >> 40) & 1048575) >= k * past THEN 12
            WHEN (past_13 & 1048575) >= k * past THEN 13
            WHEN ((past_13 >> 20) & 1048575) >= k * past THEN 14
            WHEN ((past_13 >> 40) & 1048575) >= k * past THEN 15
            ELSE 16
        END AS usual
    FROM past CROSS JOIN percentiles
),
used AS (
    SELECT
        *,
        CASE WHEN last_best > usual THEN last_best ELSE usual END AS threshold,
        CASE
            WHEN start_s - first_s >= warmup_6 THEN 6
            WHEN start_s - first_s >= warmup_5 THEN 5
            WHEN start_s - first_s >= warmup_4 THEN 4
            WHEN start_s - first_s >= warmup_3 THEN 3
            WHEN start_s - first_s >= warmup_2 THEN 2
            WHEN start_s - first_s >= warmup_1 THEN 1
            ELSE 0
        END AS warmup
    FROM decided
),
acted AS (
    SELECT
        k, host, job, part, window_s, warmup, threshold,
        resident_bytes, accessed_bytes, cold_7, allowed,
        CASE threshold
            WHEN 7 THEN cold_7
            WHEN 8 THEN cold_8
            WHEN 9 THEN cold_9
            WHEN 10 THEN cold_10
            WHEN 11 THEN cold_11
            WHEN 12 THEN cold_12
            WHEN 13 THEN cold_13
            WHEN 14 THEN cold_14
            WHEN 15 THEN cold_15
        END AS saved_bytes,
        CASE WHEN accessed_bytes IS NOT NULL THEN CASE threshold
            WHEN 7 THEN promoted_7
            WHEN 8 THEN promoted_8
            WHEN 9 THEN promoted_9
            WHEN 10 THEN promoted_10
            WHEN 11 THEN promoted_11
            WHEN 12 THEN promoted_12
            WHEN 13 THEN promoted_13
            WHEN 14 THEN promoted_14
            WHEN 15 THEN promoted_15
        END END AS promoted_bytes
    FROM used
)
SELECT
    k, host, job, part, window_s, warmup, threshold,
    COUNT(*) AS windows,
    COUNT(promoted_bytes) AS judged,
    SUM(resident_bytes) AS resident_bytes,
    SUM(cold_7) AS possible_bytes,
    SUM(saved_bytes) AS saved_bytes,
    SUM(promoted_bytes) AS promoted_bytes,
    SUM(CASE WHEN promoted_bytes IS NOT NULL THEN accessed_bytes END) AS accessed_bytes,
    COUNT(CASE WHEN promoted_bytes * 60.0 > allowed THEN 1 END) AS broken
FROM acted
GROUP BY k, host, job, part, window_s, warmup, threshold
