//! Tables of text, aligned, in Markdown's form.

/// A table that grows row by row.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column heads.
    pub fn new(heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(|h| (*h).to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| self.rows.iter().filter_map(|r| r.get(c)).map(|t| t.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (i, row) in self.rows.iter().enumerate() {
            for (c, width) in widths.iter().enumerate() {
                let text = row.get(c).map_or("", String::as_str);
                write!(f, "| {text:width$} ")?;
            }
            writeln!(f, "|")?;
            if i == 0 {
                widths.iter().try_for_each(|w| write!(f, "|{}", "-".repeat(w + 2)))?;
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

/// A fraction as a percentage with `digits` after the point; `-` if missing.
pub fn percent(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |v| format!("{:.digits$}%", v * 100.0))
}

/// The running kernel's release.
pub fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map_or("unknown".to_owned(), |t| t.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut t = Table::new(&["a", "long head"]);
        t.push(vec!["value".into(), "x".into()]);
        let text = t.to_string();
        let lengths: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(lengths, [lengths[0]; 3]);
        assert!(text.starts_with("| a     | long head |\n|---"));
        assert_eq!((percent(Some(0.1234), 1), percent(None, 1)), ("12.3%".into(), "-".into()));
    }
}
