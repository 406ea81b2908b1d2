//! The record whose facts and events are applied, and what is known besides its job.

use model::{Stamp, Timestamp};

use crate::nodes::NodeView;
use crate::state::Behaviour;

/// The record whose facts and events are applied, and what is known besides its job.
pub(crate) struct RecordContext<'a> {
    pub(crate) at: Timestamp,
    pub(crate) stamp: Stamp,
    pub(crate) behaviour: Behaviour,
    pub(crate) node_view: NodeView<'a>,
}
