//! `py1s`: the samples of each span shuffled in place.
//!
//! Source: MosaicML Streaming 0.13, `streaming/base/shuffle/py1s.py`. Differs in that a window of spans can be shuffled
//! without those before it.

use super::layout::{Layout, Trail};
use super::{Window, shuffled_span};
use crate::rng::Pcg64;
use crate::walk::Trails;

#[derive(Clone, Debug)]
pub(crate) struct Py1s {
    pub(crate) layout: Layout,
    trail: Trail,
    rng: Pcg64,
}

impl Py1s {
    pub(crate) fn new(layout: Layout, mut rng: Pcg64, kept: Option<Trails<'_>>) -> Self {
        let spans = layout.spans.len();
        if let Some(trail) = kept.and_then(|mut kept| kept.next(spans)) {
            return Self { layout, trail, rng };
        }
        let mut trail = Trail::default();
        for (place, span) in layout.spans.iter().enumerate() {
            trail.pass(place, span.length, false, &rng);
            rng.skip_shuffle(span.length);
        }
        Self { layout, trail, rng }
    }

    /// Whole spans from the one at `from`, until at least `wanted` positions are there or the node ends.
    pub(crate) fn window(&self, node: u64, from: u64, wanted: u64, window: &mut Window) {
        let layout = &self.layout;
        let mut place = layout.span_at(from);
        window.start = layout.offsets[place];
        let last = layout.node(node).end;
        let Some((mark, checkpoint)) = self.trail.before(place) else {
            return;
        };
        let mut rng = self.rng.at(checkpoint);
        for span in &layout.spans[mark..place] {
            rng.skip_shuffle(span.length);
        }
        while place < last && layout.offsets[place] < from + wanted {
            shuffled_span(&mut rng, layout.spans[place], &mut window.ids);
            place += 1;
        }
    }

    pub(crate) fn trails(&self) -> Vec<&Trail> {
        vec![&self.trail]
    }
}
