//! The table of results, printed row by row as they come.

pub struct Table {
    met: usize,
    judged: usize,
}

/// One line. What was not set stays empty.
#[derive(Default)]
pub struct Row {
    what: String,
    measured: String,
    baseline: String,
    ratio: String,
    reach: String,
    met: Option<bool>,
}

impl Row {
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    pub fn measured(mut self, measured: impl Into<String>) -> Self {
        self.measured = measured.into();
        self
    }

    pub fn baseline(mut self, baseline: impl Into<String>) -> Self {
        self.baseline = baseline.into();
        self
    }

    pub fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = format!("{ratio:.2}");
        self
    }

    pub fn reach(mut self, reach: impl Into<String>, met: bool) -> Self {
        self.reach = reach.into();
        self.met = Some(met);
        self
    }
}

impl Table {
    pub fn start() -> Self {
        let table = Self { met: 0, judged: 0 };
        table.print(&Row {
            what: "what".into(),
            measured: "measured".into(),
            baseline: "baseline".into(),
            ratio: "ratio".into(),
            reach: "reach".into(),
            met: None,
        });
        println!("|{:-<66}|{:-<36}|{:-<32}|{:-<8}|{:-<14}|{:-<8}|", "", "", "", "", "", "");
        table
    }

    pub fn add(&mut self, row: Row) {
        self.print(&row);
        self.judged += usize::from(row.met.is_some());
        self.met += usize::from(row.met == Some(true));
    }

    pub fn met(&self) -> usize {
        self.met
    }

    pub fn judged(&self) -> usize {
        self.judged
    }

    fn print(&self, row: &Row) {
        let met = match row.met {
            _ if row.reach == "reach" => "met",
            None => "",
            Some(true) => "yes",
            Some(false) => "MISSED",
        };
        let Row { what, measured, baseline, ratio, reach, .. } = row;
        println!(
            "| {what:<64} | {measured:<34} | {baseline:<30} | {ratio:>6} | {reach:<12} | {met:<6} |"
        );
    }
}
