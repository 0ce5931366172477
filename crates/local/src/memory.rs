//! How much memory there is.

use crate::Fault;

/// Left to the rest of the machine and to keys and values.
const RESERVE_BYTES: u64 = 128 << 20;

/// Refuses what would not fit, before the machine begins to swap or to kill.
pub fn check(needed: u64, available: Option<u64>) -> Result<(), Fault> {
    match available {
        Some(available) if needed + RESERVE_BYTES > available => Err(Fault::Memory {
            needed_mib: (needed + RESERVE_BYTES) >> 20,
            available_mib: available >> 20,
        }),
        _ => Ok(()),
    }
}

/// What the kernel says can be had without swapping; `None` where it does not say.
pub fn available() -> Option<u64> {
    available_in(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_both_numbers() {
        let gib = 1 << 30;
        assert!(check(gib, Some(gib + RESERVE_BYTES)).is_ok());
        assert!(check(gib, None).is_ok());
        let refused = check(gib, Some(gib + RESERVE_BYTES - 1)).unwrap_err().to_string();
        assert!(refused.contains("1152 MiB") && refused.contains("1151 MiB"), "{refused}");
    }

    #[test]
    fn the_kernel_is_read_rightly() {
        assert_eq!(available_in("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
        assert_eq!(available_in("MemTotal: 9 kB\n"), None);
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }
}
