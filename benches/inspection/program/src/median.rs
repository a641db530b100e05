/// Median of some values, with the 95 % confidence interval of the median.
#[derive(Debug, PartialEq)]
pub(crate) struct Median {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Median {
    /// Each of the two bounds of the interval is one of the values. The number of values below the median has a
    /// binomial distribution if the values are independent. No other assumption is necessary.
    ///
    /// With fewer than six values, the interval contains all values, and the confidence of the interval is below 95 %.
    /// The number of values is at most 1,000, because otherwise the smallest probability of the distribution would be a
    /// subnormal floating-point number.
    ///
    /// # Panics
    /// Panics if there is no value.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "there is no value");
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let median = f64::midpoint(values[(count - 1) / 2], values[count / 2]);
        let (mut below, mut term, mut first) = (0.0, 0.5_f64.powi(count as i32), 0);
        for index in 0..count / 2 {
            below += term;
            if below > 0.025 {
                break;
            }
            first = index;
            term *= (count - index) as f64 / (index + 1) as f64;
        }
        Self { median, low: values[first], high: values[count - 1 - first] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_agrees_with_the_tables_of_the_sign_test() {
        let of = |count: u32| Median::of((1..=count).rev().map(f64::from).collect());
        assert_eq!(of(1), Median { median: 1.0, low: 1.0, high: 1.0 });
        assert_eq!(of(4), Median { median: 2.5, low: 1.0, high: 4.0 });
        assert_eq!(of(6), Median { median: 3.5, low: 1.0, high: 6.0 });
        assert_eq!(of(15), Median { median: 8.0, low: 4.0, high: 12.0 });
        assert_eq!(of(25), Median { median: 13.0, low: 8.0, high: 18.0 });
    }
}
