//! Files of whole hosts at a time, so that memory does not grow with the fleet: no group is on two hosts.

use crate::input::judge::WindowFile;

/// Splits files, which are by host, into runs of hosts with about `rows` rows; a host with more is a run of its own.
pub fn by_hosts(files: &[WindowFile], rows: u64) -> Vec<&[WindowFile]> {
    let mut batches = Vec::new();
    let (mut begin, mut held) = (0, 0);
    let hosts = files.chunk_by(|a, b| a.footer.host == b.footer.host);
    let mut at = 0;
    for host in hosts {
        let more: u64 = host.iter().map(|file| file.footer.rows).sum();
        if at > begin && held + more > rows {
            batches.push(&files[begin..at]);
            (begin, held) = (at, 0);
        }
        held += more;
        at += host.len();
    }
    if at > begin {
        batches.push(&files[begin..at]);
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::footer::Footer;

    #[test]
    fn hosts_stay_whole_and_nothing_is_lost() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..500 {
            let mut files = Vec::new();
            for host in 0..rng.u32(..9) {
                for hour in 0..rng.i64(1..4) {
                    let footer =
                        Footer { host: format!("h{host}"), first_us: hour, last_us: hour, rows: rng.u64(1..50) };
                    files.push(WindowFile { path: format!("{host}/{hour}").into(), bytes: 1, footer });
                }
            }
            let batches = by_hosts(&files, 60);
            assert_eq!(batches.concat(), files);
            for pair in batches.windows(2) {
                assert_ne!(pair[0].last().unwrap().footer.host, pair[1][0].footer.host);
                let rows = |batch: &[WindowFile]| batch.iter().map(|file| file.footer.rows).sum::<u64>();
                let one_host = |batch: &[WindowFile]| batch.iter().all(|file| file.footer.host == batch[0].footer.host);
                assert!(rows(pair[0]) <= 60 || one_host(pair[0]));
            }
        }
    }
}
