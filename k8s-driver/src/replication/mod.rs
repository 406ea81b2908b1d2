//! Reading the log of a live leader: by a standby that follows it, and by a command of a user.

pub(crate) mod credentials;
pub(crate) mod follower;
pub(crate) mod locate;
pub(crate) mod remote;
mod session;
