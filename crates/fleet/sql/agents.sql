-- What each machine's agent did in each window. CPU time and cost are those of the whole machine, the same in all rows of a
-- window. Windows are told apart by the microsecond: after a clock was set back, two may begin in the same second.
SELECT
    host, cluster_name, boot_id, kernel, isotherm_version, source, start_us, window_s,
    COUNT(*) AS rows_held,
    MAX(monitor_cpu_us) AS monitor_cpu_us,
    MAX(target_cost_us) AS target_cost_us
FROM windows
GROUP BY host, cluster_name, boot_id, kernel, isotherm_version, source, start_us, window_s
