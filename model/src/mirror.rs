//! The mirror: what decisions depend on, kept on an API object so that losing the log is survivable.

use std::collections::{BTreeMap, BTreeSet};

use crate::autoscaler::Scaling;
use crate::event::Decision;
use crate::id::{Incarnation, Stamp, Text, Timestamp, Uid};
use crate::phase::Phase;
use crate::progress::SpeedSample;
use crate::share::{Charge, NodeRefusal, Share, ShareLoss, Usage};

/// Members written to `status.trainyard` (or an annotation where the schema is not ours).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mirror {
    /// The record it was written from.
    pub stamp: Stamp,
    /// The phase in the engine's words.
    pub phase: Phase,
    /// The decision whose pods are still going, or the ending.
    pub decision: Option<Decision>,
    /// Pods that a decision deletes and that are not yet seen gone; all decisions together.
    pub wait_uids: BTreeSet<Uid>,
    /// Stands for every pod of the group with a lower incarnation, where a decision takes a whole group.
    pub wait_below: BTreeMap<Text, Incarnation>,
    /// Restarts charged to each group's limit.
    pub charged: BTreeMap<Text, u32>,
    /// No pod of the job is created again before this.
    pub retry_at: Option<Timestamp>,
    /// The pods of these slots are not created again before these times.
    pub slot_retry: BTreeMap<String, Timestamp>,
    /// Slots of the group from this index on were added after its last restart.
    pub grown_from: BTreeMap<Text, u32>,
    /// Number of replicas of the group, where it was restarted: what it grows by later is distinguished from that.
    pub replicas: BTreeMap<Text, u32>,
    /// Time since which the job waits for containers to be created.
    pub first_creating_at: Option<Timestamp>,
    /// Time at which the first pod ran; the time limit counts from here.
    pub first_running_at: Option<Timestamp>,
    /// Restart counts that slots without a pod will carry, where they differ from their group's.
    pub slot_counts: BTreeMap<String, u32>,
    /// Slots of each group whose pods failed for good, as ranges of indices: `1,3-5`.
    pub lost: BTreeMap<Text, String>,
    /// Time of the job's last admission, where its time limit counts from that.
    pub admitted_at: Option<Timestamp>,
    /// Nodes that refused one of its pods.
    pub refused: BTreeMap<Text, NodeRefusal>,
    /// Time since which its time limit stands still.
    pub limit_paused_at: Option<Timestamp>,
    /// Reason for which the queues took its places away, until they grant some again.
    pub share_loss: Option<Box<ShareLoss>>,
    /// Restarts of containers of pods that are gone.
    pub container_restarts: u32,
    /// Rounds in which failed pods were replaced, where a budget counts those.
    pub rounds: u32,
    /// Time of the last of them, where the job's object notes it.
    pub round_at: Option<Timestamp>,
    /// Last completed run of each group whose pods run once.
    pub achieved: BTreeMap<Text, Text>,
    /// Places that the queues granted. A pod is created only once the mirror shows its place.
    pub share: Share,
    /// Queue and GPUs that the places count for; absent when none was ever granted.
    pub charge: Option<Box<Charge>>,
    /// Time of the last change of the share by the queues.
    pub share_at: Option<Timestamp>,
    /// Use of GPUs before the last change of the share.
    pub usage: Usage,
    /// Starts in a row that did not come whole.
    pub failed_starts: u32,
    /// Time before which the job is granted no share: the back-off after a start that failed.
    pub start_after: Option<Timestamp>,
    /// Speed samples of jobs that have ended; of a queue object only.
    pub speed_samples: Vec<SpeedSample>,
    /// Time at which the coordinator dequeued the job; absent where it did not wait for that.
    pub dequeued_at: Option<Timestamp>,
    /// State of the job's autoscaler; absent where it has none.
    pub scaling: Option<Box<Scaling>>,
}
