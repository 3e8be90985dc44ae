//! Totals over a set of instructions, and the executions and cycles per instruction that follow from them.
//!
//! Input: analysed instructions of one or several procedures. Output: estimates with their intervals. This module gives no
//! estimate that needs an unknown scale.

use dwell_analysis::{CHANCE_SAMPLES_MAX, InstructionCost, Interval, Scale, ScaleKind};

/// Totals over a set of instructions, in units of samples (multiply by the period for cycles or executions).
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Time samples during which one of the instructions was at the head of the queue.
    pub head_samples: f64,
    /// The part of `head_samples` that belongs to instructions with a known frequency.
    pub estimated_samples: f64,
    /// Sum of frequencies: instructions executed divided by the period; up to an unknown factor if `scale` is not absolute.
    pub executed: f64,
    /// Least and largest possible value of `executed`.
    executed_min: f64,
    executed_max: f64,
    /// Cycles that the same executions would take without dynamic stalls.
    pub best_case: f64,
    /// The largest frequency, with its interval if the scale is absolute.
    pub most: Option<(f64, Option<Interval>)>,
    /// Least number of cycles that any instruction takes on the processor.
    pub slot_cycles: f64,
    /// Weakest kind of scale among the frequencies; `None` if no frequency is known.
    pub scale: Option<ScaleKind>,
}

impl Totals {
    /// Creates totals over no instructions, on a processor whose instructions take at least `slot_cycles` cycles.
    pub fn none(slot_cycles: f64) -> Totals {
        Totals { slot_cycles, ..Totals::default() }
    }

    /// Adds one instruction of a procedure whose scale is `scale`.
    pub fn add_instruction(&mut self, cost: &InstructionCost, scale: &Scale) {
        self.head_samples += cost.head_samples;
        let Some(frequency) = cost.frequency else { return };
        self.estimated_samples += cost.head_samples;
        self.executed += frequency;
        self.best_case += frequency * cost.best_case_cycles;
        let possible = Interval { min: 0.0, max: frequency * scale.times_max() };
        let interval = cost.frequency_interval.unwrap_or(possible);
        self.executed_min += interval.min;
        self.executed_max += interval.max;
        self.merge(Some((frequency, cost.frequency_interval)), Some(scale.kind));
    }

    /// Adds the totals of other instructions.
    pub fn add(&mut self, more: &Totals) {
        self.head_samples += more.head_samples;
        self.estimated_samples += more.estimated_samples;
        self.executed += more.executed;
        self.executed_min += more.executed_min;
        self.executed_max += more.executed_max;
        self.best_case += more.best_case;
        self.slot_cycles = self.slot_cycles.max(more.slot_cycles);
        self.merge(more.most, more.scale);
    }

    /// Returns the totals of a part of the executions and samples: this times all.
    pub fn scaled(&self, part: f64) -> Totals {
        let scaled = |interval: Interval| Interval { min: part * interval.min, max: part * interval.max };
        Totals {
            head_samples: part * self.head_samples,
            estimated_samples: part * self.estimated_samples,
            executed: part * self.executed,
            executed_min: part * self.executed_min,
            executed_max: part * self.executed_max,
            best_case: part * self.best_case,
            most: self.most.map(|(frequency, interval)| (part * frequency, interval.map(scaled))),
            ..*self
        }
    }

    fn merge(&mut self, most: Option<(f64, Option<Interval>)>, scale: Option<ScaleKind>) {
        self.most = [self.most, most].into_iter().flatten().max_by(|a, b| a.0.total_cmp(&b.0));
        self.scale = [self.scale, scale].into_iter().flatten().min();
    }

    /// Returns whether all frequencies are absolute.
    pub fn is_absolute(&self) -> bool {
        self.scale == Some(ScaleKind::Absolute)
    }

    /// Returns the instructions executed divided by the period; `None` without an absolute scale.
    pub fn absolute_executed(&self) -> Option<f64> {
        (self.is_absolute() && self.executed > 0.0).then_some(self.executed)
    }

    /// Returns the 90 % interval of [`Totals::executed`].
    pub fn executed_interval(&self) -> Interval {
        Interval { min: self.executed_min, max: self.executed_max }
    }

    /// Returns cycles per instruction, at least what the processor needs; `None` without an absolute scale.
    pub fn cpi(&self) -> Option<f64> {
        let cpi = self.estimated_samples / self.absolute_executed()?;
        Some(cpi.max(self.slot_cycles))
    }

    /// Returns the 90 % interval of the cycles per instruction; without an absolute scale, the possible range.
    pub fn cpi_interval(&self) -> Interval {
        let samples = self.estimated_samples;
        // The standard deviation of a number of samples is about its square root.
        let chance = Interval::about(1.0, 1.0 / samples.max(1.0).sqrt()).max;
        let over =
            |samples: f64, executed: f64| if executed > 0.0 { samples / executed } else { f64::INFINITY };
        let least = if self.executed_max > 0.0 { samples / chance / self.executed_max } else { 0.0 };
        let most = over((samples * chance).max(CHANCE_SAMPLES_MAX), self.executed_min);
        let min = least.max(self.slot_cycles);
        Interval { min, max: most.max(min) }
    }

    /// Returns cycles per instruction without dynamic stalls, by the machine model. It needs only ratios of frequencies.
    pub fn best_case_cpi(&self) -> Option<f64> {
        (self.executed > 0.0).then(|| self.best_case / self.executed)
    }
}

#[cfg(test)]
mod tests {
    use dwell_analysis::Confidence;

    use super::*;

    fn cost(frequency: f64, samples: f64, interval: Option<Interval>) -> InstructionCost {
        InstructionCost {
            frequency: Some(frequency),
            frequency_interval: interval,
            confidence: Confidence::Low,
            cpi: Some(samples / frequency),
            cpi_interval: Interval { min: 0.0, max: f64::INFINITY },
            issue_cycles_min: 1.0,
            best_case_cycles: 1.0,
            gain_cycles: 0.0,
            head_samples: samples,
            stalls: Vec::new(),
            kernel: None,
        }
    }

    #[test]
    fn without_an_absolute_scale_there_are_bounds_only() {
        let scale = Scale { headroom: 2.0, ..Scale::default() };
        let mut totals = Totals::none(0.125);
        totals.add_instruction(&cost(100.0, 1000.0, None), &scale);
        assert_eq!((totals.cpi(), totals.absolute_executed()), (None, None));
        let Interval { min, max } = totals.cpi_interval();
        assert!(min > 2.0 && min < 5.0 && max == f64::INFINITY, "{min} {max}");
        assert_eq!(totals.best_case_cpi(), Some(1.0));
    }

    #[test]
    fn partly_absolute_totals_are_bounded_by_the_absolute_part() {
        let absolute = Scale { kind: ScaleKind::Absolute, headroom: 1.0, ..Scale::default() };
        let mut totals = Totals::none(0.125);
        let interval = Interval { min: 90.0, max: 110.0 };
        totals.add_instruction(&cost(100.0, 1000.0, Some(interval)), &absolute);
        assert_eq!(totals.cpi(), Some(10.0));
        let Interval { min, max } = totals.cpi_interval();
        assert!(min < 9.1 && min > 8.5 && max > 11.1 && max < 11.8, "{min} {max}");
        let mut other = Totals::none(0.125);
        other.add_instruction(&cost(50.0, 1000.0, None), &Scale { headroom: 1.0, ..Scale::default() });
        totals.add(&other);
        assert_eq!((totals.cpi(), totals.scale), (None, Some(ScaleKind::Procedure)));
        let Interval { min, max } = totals.cpi_interval();
        assert!(min > 9.0 && min < 11.0 && max > 22.2 && max < 23.5, "{min} {max}");
    }
}
