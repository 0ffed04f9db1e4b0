//! `py1s`: shuffles the samples of each span in place.
//!
//! Source: MosaicML Streaming 0.13, `streaming/base/shuffle/py1s.py`. Differs in that a window of spans can be
//! shuffled without the spans before it.

use super::layout::{CheckpointList, Layout, Window, shuffled_span};
use crate::rng::Pcg64;
use crate::rng_checkpoints::CheckpointLists;

#[derive(Clone, Debug)]
pub(crate) struct Py1s {
    pub(crate) layout: Layout,
    checkpoint_list: CheckpointList,
    rng: Pcg64,
}

impl Py1s {
    pub(crate) fn new(layout: Layout, mut rng: Pcg64, kept: Option<CheckpointLists<'_>>) -> Self {
        let spans = layout.spans.len();
        if let Some(checkpoint_list) = kept.and_then(|mut kept| kept.next(spans)) {
            return Self {
                layout,
                checkpoint_list,
                rng,
            };
        }
        let mut checkpoint_list = CheckpointList::default();
        for (span_index, span) in layout.spans.iter().enumerate() {
            checkpoint_list.pass(span_index, span.length, false, &rng);
            rng.skip_shuffle(span.length);
        }
        Self {
            layout,
            checkpoint_list,
            rng,
        }
    }

    /// Computes whole spans from the one at `from`, until there are at least `wanted` positions or the node ends.
    pub(crate) fn window(&self, node: u64, from: u64, wanted: u64, window: &mut Window) {
        let layout = &self.layout;
        let mut span_index = layout.span_at(from);
        window.start = layout.offsets[span_index];
        let last = layout.node(node).end;
        let rng = self
            .checkpoint_list
            .generator(&self.rng, &layout.spans, span_index);
        let Some(mut rng) = rng else {
            return;
        };
        while span_index < last && layout.offsets[span_index] < from + wanted {
            shuffled_span(&mut rng, layout.spans[span_index], &mut window.ids);
            span_index += 1;
        }
    }

    pub(crate) fn checkpoint_lists(&self) -> Vec<&CheckpointList> {
        vec![&self.checkpoint_list]
    }
}
