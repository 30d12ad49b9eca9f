//! One Pod that was read, and what each field says about it: a figure, or why there is none.
//!
//! The order of the judgement is the order of the contract's codes (metrics contract, end of section 6).

use model_deployment_crds::metrics::Quantiles;

use super::fault::Fault;
use crate::exposition::{Flaw, Labels};
use crate::fields::{self, Code, Field, Layout, List, Measure, Only, Pick, Support};
use crate::pod::Facts;
use crate::window::{self, Baseline, HistogramIncrease, Increase, NoBaseline, State, Trail};

/// A Pod that was read.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    pub(super) facts: &'a Facts,
    pub(super) trail: &'a Trail,
    /// Whether every readable decode half, and at least one, counted no first token in its window.
    pub(super) decodes_stood_still: bool,
}

/// What a field says about a Pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Figure {
    /// A present value.
    Gauge(f64),
    /// A mean or rate.
    Window {
        value: f64,
        samples: f64,
        seconds: f64,
        quantiles: Option<Quantiles>,
    },
    /// Cache hits.
    Hits { hits: f64, queries: f64, seconds: f64 },
}

impl Figure {
    /// Whether it is a figure: finite samples can add up to what is no number.
    fn is_finite(self) -> bool {
        match self {
            Self::Gauge(value) => value.is_finite(),
            Self::Window { value, samples, .. } => value.is_finite() && samples.is_finite(),
            Self::Hits { hits, queries, .. } => hits.is_finite() && queries.is_finite(),
        }
    }
}

impl Subject<'_> {
    /// The figure of a field.
    ///
    /// # Errors
    ///
    /// Why there is none. No fault where another field's entry stands for this one.
    pub(super) fn judge(&self, field: &Field, support: Support) -> Result<Figure, Option<Fault>> {
        let figure = self.measure(field, support)?;
        figure
            .is_finite()
            .then_some(figure)
            .ok_or_else(|| Some(overflow(field)))
    }

    fn measure(&self, field: &Field, support: Support) -> Result<Figure, Option<Fault>> {
        if let (List::Traffic, Measure::Ratio { part, whole }) = (field.list, field.measure) {
            return self.judge_errors(field, part, whole);
        }
        self.find(field, support)?;
        if let Measure::Gauge(family) = field.measure {
            return Ok(Figure::Gauge(self.present(family, field.layout)));
        }
        let baseline = self.baseline(field)?;
        let seconds = seconds(baseline);
        match field.measure {
            Measure::Rate(pick) => {
                let gained = self.gained_by(pick, field.layout, baseline)?;
                Ok(Figure::Window {
                    value: gained / seconds,
                    samples: gained,
                    seconds,
                    quantiles: None,
                })
            }
            Measure::Mean { histogram, quantiles } => {
                let gained = self.recorded(histogram, field.layout, baseline)?;
                if gained.count <= 0.0 {
                    return Err(Some(self.nothing_recorded(histogram, baseline)));
                }
                let buckets = gained.buckets.filter(|_| quantiles);
                Ok(Figure::Window {
                    value: gained.sum / gained.count,
                    samples: gained.count,
                    seconds,
                    quantiles: buckets.as_ref().and_then(window::quantiles),
                })
            }
            Measure::Ratio { part, whole } => {
                let hits = self.gained_by(part, field.layout, baseline)?;
                let queries = self.gained_by(whole, field.layout, baseline)?;
                if self.is_idle(baseline) {
                    return Err(Some(idle()));
                }
                if hits > queries {
                    return Err(Some(Fault::new(
                        Code::Inconsistent,
                        format!("{} counted more hits than queries in the window.", field.source()),
                    )));
                }
                if queries == 0.0 {
                    return Err(Some(Fault::new(
                        Code::NoQueries,
                        format!("{} counted no queries in the window.", field.source()),
                    )));
                }
                Ok(Figure::Hits { hits, queries, seconds })
            }
            Measure::Gauge(_) => unreachable!("answered above"),
        }
    }

    /// Errors over requests. Where one of the counters gives no window, its own entry stands for both.
    fn judge_errors(&self, field: &Field, errors: Pick, requests: Pick) -> Result<Figure, Option<Fault>> {
        for pick in [requests, errors] {
            let single = fields::FIELDS.iter().find(|other| {
                matches!(other.measure, Measure::Rate(rate) if rate.family == pick.family && rate.only == pick.only)
            });
            let support = single.and_then(|single| Some((single, single.support(self.facts)?)));
            let is_measured = support.is_some_and(|(single, support)| self.judge(single, support).is_ok());
            if !is_measured {
                return Err(None);
            }
        }
        let apart = || {
            Fault::new(
                Code::IncompatibleWindows,
                format!("The counters of {} have no common window.", field.source()),
            )
        };
        let baseline = self.trail.baseline(field.families()).map_err(|_| apart())?;
        let gained = |pick| self.gained_by(pick, field.layout, baseline).map_err(|_| apart());
        let (errors, requests) = (gained(errors)?, gained(requests)?);
        if requests == 0.0 && errors == 0.0 {
            return Err(Some(idle()));
        }
        if errors > requests {
            return Err(Some(Fault::new(
                Code::Inconsistent,
                format!("{} counted more errors than requests in the window.", field.source()),
            )));
        }
        Ok(Figure::Window {
            value: errors / requests,
            samples: requests,
            seconds: seconds(baseline),
            quantiles: None,
        })
    }

    fn nothing_recorded(&self, histogram: &str, since: Baseline) -> Fault {
        if self.is_idle(since) {
            return idle();
        }
        Fault::new(
            Code::NoObservations,
            format!("{histogram} recorded nothing in the window."),
        )
    }

    fn baseline(&self, field: &Field) -> Result<Baseline, Fault> {
        self.trail.baseline(field.families()).map_err(|none| match none {
            NoBaseline::FirstSample => Fault::new(
                Code::FirstSample,
                format!(
                    "This is the first usable read of {} within five minutes; another one gives the figure.",
                    field.source()
                ),
            ),
            NoBaseline::Restarted => Fault::new(
                Code::Reset,
                format!(
                    "The container restarted after the last usable read of {}.",
                    field.source()
                ),
            ),
        })
    }

    fn present(&self, family: &str, layout: Layout) -> f64 {
        match self.trail.last().state(family) {
            State::Values(series) => window::total(layout, series.iter().map(|(labels, value)| (labels, *value))),
            _ => 0.0,
        }
    }

    fn gained_by(&self, pick: Pick, layout: Layout, since: Baseline) -> Result<f64, Fault> {
        match self.trail.increase(since, pick.family) {
            Ok(Some(Increase::Counter(series))) => Ok(window::total(
                layout,
                series.into_iter().filter(|(labels, _)| pick.only.includes(labels)),
            )),
            Ok(_) => Ok(0.0),
            Err(_) => Err(reset(pick.family)),
        }
    }

    fn recorded(&self, histogram: &str, layout: Layout, since: Baseline) -> Result<HistogramIncrease, Fault> {
        match self.trail.increase(since, histogram) {
            Ok(Some(Increase::Histogram(series))) => Ok(HistogramIncrease::total(layout, series.into_iter())),
            Ok(_) => Ok(HistogramIncrease::default()),
            Err(_) => Err(reset(histogram)),
        }
    }

    /// Whether the last body holds everything that the field needs, in a usable form.
    fn find(&self, field: &Field, support: Support) -> Result<(), Fault> {
        if let Support::Unsupported(reason) = support {
            return Err(Fault::new(Code::Unsupported, reason));
        }
        let last = self.trail.last();
        for family in field.families() {
            if let State::Flawed(Flaw::TooLarge) = last.state(family) {
                return Err(Fault::new(
                    Code::TooLarge,
                    format!("{family} has more lines, labels or bytes than are read of one body."),
                ));
            }
        }
        for family in field.families() {
            if let State::Flawed(Flaw::NotUsable(damage)) = last.state(family) {
                return Err(Fault::new(Code::NotUsable, format!("{family} holds {damage}.")));
            }
        }
        for family in field.families() {
            match last.state(family) {
                State::Values(_) | State::Histograms(_) => {}
                state => return Err(self.absence(field, support, family, state)),
            }
        }
        self.find_modes(field)
    }

    /// Every value of `mode` that a field adds has to be there. One that vanished inside the window is a reset.
    fn find_modes(&self, field: &Field) -> Result<(), Fault> {
        let Measure::Ratio { part, whole } = field.measure else {
            return Ok(());
        };
        for pick in [part, whole] {
            let (Only::Modes(modes), State::Values(series)) = (pick.only, self.trail.last().state(pick.family)) else {
                continue;
            };
            for mode in modes {
                let such = |labels: &Labels| labels.get("mode") == Some(mode);
                if series.keys().any(such) {
                    continue;
                }
                let baseline = self.trail.baseline(field.families());
                if baseline.is_ok_and(|since| self.trail.held(since, pick.family, such)) {
                    return Err(reset(pick.family));
                }
                return Err(Fault::new(
                    Code::Absent,
                    format!("{} has no series of mode {mode} in the Pod's metrics.", pick.family),
                ));
            }
        }
        Ok(())
    }
}

/// The length of a window, as the number nearest to its microseconds.
fn seconds(baseline: Baseline) -> f64 {
    baseline.window.as_micros() as f64 / 1e6
}

/// An infinite figure, which is no value any more than an infinite sample is (metrics contract, section 4).
pub(super) fn overflow(field: &Field) -> Fault {
    Fault::new(
        Code::NotUsable,
        format!("{} comes to more than a number holds.", field.source()),
    )
}

fn idle() -> Fault {
    Fault::new(Code::Idle, "The Pod served no request in the window.")
}

fn reset(family: &str) -> Fault {
    Fault::new(
        Code::Reset,
        format!("{family} fell, or a series of it vanished or came back, inside the window."),
    )
}
