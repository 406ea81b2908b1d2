//! The vocabulary of Trainyard: identifiers, time, the job model, facts, events and commands.
//!
//! Owns the words every other crate speaks and nothing else. It must not do IO, hold rules (those are `engine`'s), know
//! a served API (those are `apis`'), or pull in a Kubernetes client or a runtime.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::todo,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::float_arithmetic
)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

pub mod autoscaler;
pub mod command;
pub mod config;
pub mod coordination;
pub mod event;
pub mod exit;
pub mod fact;
pub mod id;
pub mod json;
pub mod last_words;
pub mod mirror;
pub mod notes;
pub mod owned;
pub mod phase;
pub mod pod;
pub mod policy;
pub mod printable;
pub mod progress;
pub mod queue;
pub mod requirements;
pub mod selector;
pub mod share;
pub mod spec;

pub use autoscaler::{Autoscaled, Autoscaler, Scaling, ScalingCondition, ScalingStep};
pub use command::{Command, Effect, ObjectRef, Outcome, PodMark};
pub use config::Config;
pub use coordination::{Coordination, QueueSelector, QuotaFact, ScopedRequest};
pub use event::{Cause, CauseKind, Decision, Event, JobEvent, QueueEvent, Replacement, TargetUpdate};
pub use fact::{
    ClassFact, ClusterFact, Fact, GateFact, JobFact, JudgedNode, Missing, NamespaceFact, NodeFact, ObjectFact,
    OwnedFact, QueueFact, ServiceFact, SpecFact,
};
pub use id::{Incarnation, JobKey, Kind, Position, ResourceVersion, SlotId, Stamp, Term, Text, Timestamp, Uid};
pub use mirror::Mirror;
pub use notes::{AnnotationChanges, Checkpoint, Elastic, ObjectAnnotations};
pub use owned::{CreatePhase, GateReport, OwnedRef, OwnedSpec, ReadinessGate, Retain};
pub use phase::Phase;
pub use pod::{ContainerEnd, ContainerFact, ContainerState, PodFact, PodHolding, PodPhase};
pub use policy::{
    Budget, CleanBy, CleanPodPolicy, ClockStart, GroupEndPolicy, JobEndPolicy, RestartPolicy, RestartScope, Retryable,
    Threshold,
};
pub use progress::{Measurement, Measurements, Progress, SpeedSample};
pub use queue::{QueueReport, QueueSpec, QuotaSpec, Reclaim, UserCounts, WaitingJob, WithinQueue};
pub use requirements::{NodeSelectorTerm, PodRequirements, Taint, Toleration};
pub use selector::{LabelOperator, LabelRequirement, LabelSelector, NAMESPACE_NAME};
pub use share::{
    Charge, Demand, GpuRequest, LossKind, NodeRefusal, Resize, Share, ShareChange, ShareLoss, ShareTarget, SizeRange,
    Usage,
};
pub use spec::{
    Dependency, Edits, EndTiming, FieldError, GroupSpec, JobSpec, Milestones, PhaseRules, Reached, Running,
};
