//! What has to be so before a plane is ready: components answer, pods can be made, nodes take them.

use std::os::unix::net::UnixStream;

use super::{ControlPlane, printed};
use crate::component::Component;
use crate::error::{Error, io};
use crate::nodes;
use crate::process::Running;
use crate::wait::Deadline;

/// Calls of kubectl that make nodes at the same time. Each makes one after the other.
const CREATORS: u32 = 4;

impl ControlPlane {
    /// Waits for etcd and the API server; of the others only the effects are waited for.
    pub(super) fn wait_until_ready(&self, component: Component, deadline: Deadline) -> Result<(), Error> {
        let what = format!("{} to be ready", component.program());
        let waited = deadline.wait_for(&what, || {
            self.running(component, Running::check)?;
            match component {
                Component::Etcd => Ok(UnixStream::connect(self.etcd_socket()).err().map(|error| error.to_string())),
                Component::ApiServer => Ok(self.ask(&["get", "--raw=/readyz", "--request-timeout=5s"]).err()),
                Component::ControllerManager | Component::Scheduler | Component::Kwok => Ok(None),
            }
        });
        self.with_log(component, waited)
    }

    /// Turns the end of patience with a component into an error that shows its log.
    fn with_log(&self, component: Component, waited: Result<(), Error>) -> Result<(), Error> {
        match waited {
            Err(Error::TimedOut { what, seconds, seen }) => self.running(component, |running| {
                Err(running
                    .failure(format!("did not do its part in {seconds} s: waited for {what}; last seen: {seen}")))
            }),
            other => other,
        }
    }

    /// Returns the output of kubectl, or its error; for commands that may fail a few times.
    fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        self.run_kubectl(arguments).map_err(|error| error.to_string())
    }

    pub(super) fn wait_for_service_account(&self, deadline: Deadline) -> Result<(), Error> {
        if !self.options.controller_manager {
            return Ok(());
        }
        let waited = deadline.wait_for("the default service account", || {
            self.running(Component::ControllerManager, Running::check)?;
            Ok(self.ask(&["get", "serviceaccount", "default", "--namespace=default"]).err())
        });
        self.with_log(Component::ControllerManager, waited)
    }

    pub(super) fn create_nodes(&self) -> Result<(), Error> {
        let count = self.options.nodes;
        let each = count.div_ceil(CREATORS).max(1);
        let mut creators = Vec::new();
        for first in (0..count).step_by(each as usize) {
            let list = nodes::list(first..(first + each).min(count), self.options.gpus).to_string();
            // Nothing to validate against: leaving it out saves a download of the whole schema.
            let mut command = self.kubectl(["create", "--validate=false", "-o", "name", "-f", "-"]);
            let child = self.feed(&mut command, &list)?;
            creators.push((command, child));
        }
        for (command, child) in creators {
            printed(&command, &child.wait_with_output().map_err(io("running kubectl"))?)?;
        }
        Ok(())
    }

    /// New nodes have a taint that the controller manager takes away.
    pub(super) fn wait_for_nodes(&self, deadline: Deadline) -> Result<(), Error> {
        const COLUMNS: &str = "custom-columns=R:.status.conditions[?(@.type==\"Ready\")].status,T:.spec.taints[*].key";
        let wanted = self.options.nodes as usize;
        if wanted == 0 {
            return Ok(());
        }
        let waited = deadline.wait_for("all nodes to take pods", || {
            self.running(Component::Kwok, Running::check)?;
            let text = match self.ask(&["get", "nodes", "--no-headers", "-o", COLUMNS]) {
                Ok(text) => text,
                Err(error) => return Ok(Some(error)),
            };
            let ready = text.lines().filter(|line| line.split_ascii_whitespace().eq(["True", "<none>"])).count();
            Ok((ready < wanted).then(|| format!("{ready} of {wanted}")))
        });
        self.with_log(Component::Kwok, waited)
    }
}
