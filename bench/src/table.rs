//! The table: what was measured, of the bare client and of the operator, their ratio, and the aim.

/// Anything that keeps a figure from being measured.
pub(crate) type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Prints the heading of a part of the table.
pub(crate) fn heading(title: &str) {
    println!("\n{title}");
    println!("  {:<56} {:>12} {:>12} {:>8}  {:>12}", "", "bare client", "operator", "ratio", "aim");
}

/// A line of the table.
#[derive(Debug, Default)]
pub(crate) struct Row {
    what: String,
    bare: String,
    operator: String,
    ratio: String,
    aim: String,
    met: Option<bool>,
}

impl Row {
    /// A line about something.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    /// Returns the figures of the bare client.
    pub(crate) fn bare(mut self, figure: impl Into<String>) -> Self {
        self.bare = figure.into();
        self
    }

    /// Returns the figures of the operator.
    pub(crate) fn operator(mut self, figure: impl Into<String>) -> Self {
        self.operator = figure.into();
        self
    }

    /// Both, and the operator's as a multiple of the bare client's, which is to be at most `most`.
    pub(crate) fn both(self, bare: f64, operator: f64, digits: usize, most: Option<f64>) -> Self {
        let ratio = if bare > 0.0 { operator / bare } else { f64::NAN };
        let shown = |figure: f64| format!("{figure:.digits$}");
        let mut row = self.bare(shown(bare)).operator(shown(operator));
        row.ratio = format!("{ratio:.2}");
        if let Some(most) = most {
            row.aim = format!("<= {most:.2}");
            row.met = Some(ratio <= most);
        }
        row
    }

    /// Returns the aim, and whether it was met.
    pub(crate) fn aim(mut self, aim: impl Into<String>, met: bool) -> Self {
        self.aim = aim.into();
        self.met = Some(met);
        self
    }

    /// [`Row::aim`] where it applies.
    pub(crate) fn aim_where(self, applies: bool, aim: impl Into<String>, met: bool) -> Self {
        if applies { self.aim(aim, met) } else { self }
    }

    /// Prints it. A missed aim is no error.
    pub(crate) fn print(self) {
        let Self { what, bare, operator, ratio, aim, met } = self;
        let verdict = met.map_or("", |met| if met { "met" } else { "missed" });
        println!("{}", format!("  {what:<56} {bare:>12} {operator:>12} {ratio:>8}  {aim:>12}  {verdict}").trim_end());
    }
}

/// Prints a line below a part of the table.
pub(crate) fn note(text: &str) {
    println!("  {text}");
}

/// The middle one of some figures, or the mean of the middle two.
pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let (half, odd) = (figures.len() / 2, figures.len() % 2 == 1);
    let at = |place: usize| figures.get(place).copied().unwrap_or(f64::NAN);
    if odd { at(half) } else { f64::midpoint(at(half.wrapping_sub(1)), at(half)) }
}

/// A count as a figure.
#[expect(clippy::cast_precision_loss, reason = "counts and bytes of one machine are far below 2^52")]
pub(crate) const fn figure(count: u64) -> f64 {
    count as f64
}

/// The length of something as a figure.
pub(crate) fn length(count: usize) -> f64 {
    figure(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Bytes in megabytes (10^6).
pub(crate) fn mb(bytes: f64) -> String {
    format!("{:.1}", bytes / 1e6)
}

/// Bytes in mebibytes (2^20).
pub(crate) fn mib(bytes: f64) -> String {
    format!("{:.2}", bytes / f64::from(1 << 20))
}
