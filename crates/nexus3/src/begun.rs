//! When this process began.

use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// The moment at which this process was made, never later: whoever started it has had it since then. Now, where the
/// system does not say.
pub fn at() -> Timestamp {
    let now = Timestamp::now();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let boot = clock_gettime(ClockId::Boottime);
    let whole = u64::try_from(boot.tv_sec).unwrap_or_default();
    let up = Duration::new(whole, u32::try_from(boot.tv_nsec).unwrap_or_default());
    age(&stat, clock_ticks_per_second(), up)
        .map_or(now, |age| now.saturating_sub(age).unwrap_or(now))
}

/// How old the process with this `stat` is, on a machine that is up for so long; a tick or two more than it is.
fn age(stat: &str, ticks_per_second: u64, up: Duration) -> Option<Duration> {
    // The program's name may hold blanks and brackets; the moment is the twentieth field behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u64 = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let tick = 1_000_000_000_u64.checked_div(ticks_per_second)?;
    let began = Duration::from_nanos(ticks.checked_mul(tick)?);
    Some(up.checked_sub(began)? + Duration::from_nanos(tick))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_behind_whatever_name_the_program_has() {
        let stat = "7 (a) (b 1) S 1 7 7 0 -1 0 0 0 0 0 1 2 3 4 20 0 1 0 12345 0 0";
        let age = |up| age(stat, 100, Duration::from_millis(up));
        assert_eq!(age(123_450), Some(Duration::from_millis(10)));
        assert_eq!(age(124_000), Some(Duration::from_millis(560)));
        assert_eq!(age(123_440), None, "it would have begun before it did");
    }

    #[test]
    fn this_process_began_a_moment_ago() {
        let (began, now) = (at(), Timestamp::now());
        assert!(began < now && now.duration_since(began).as_secs() < 3600, "{began} {now}");
    }
}
