//! Lists a source page by page, and reads the cluster's resourceVersion. Tests: `watch/tests.rs`.

use std::sync::Arc;
use std::time::Duration;

use apis::{ObservedObject, Resource};
use http::Request;
use kube::api::ListParams;
use model::{Kind, ResourceVersion, Text};

use super::error::{Error, failed, rejected};
use super::{ACCEPT_JSON, LIST_TIMEOUT, SourceWatch, prepared};
use crate::client::exchange;
use crate::process::status::Definition;
use crate::watch::decode::{self, ObjectType};
use crate::watch::projection;
use crate::watch::sources::collection;

/// Number of objects in one page of a list.
pub(crate) const LIST_PAGE_SIZE: u32 = 500;

/// Time until a source that a term goes without is listed again for the first time; it doubles.
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum time between two attempts to list a source that a term goes without.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);

const ACCEPT_METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// A complete list of one source.
pub(super) struct ListResult {
    /// Version from which a watch starts; `None` if the resource is not served.
    pub(super) version: Option<String>,
    pub(super) at: ResourceVersion,
    pub(super) items: Vec<ObservedObject>,
}

impl SourceWatch {
    /// Lists the source; the list of a missing custom resource is empty.
    pub(super) async fn list_if_served(&self) -> Result<ListResult, Error> {
        let source = &self.source;
        let view = match self.list().await {
            Err(Error::NotServed) if source.optional => {
                ListResult { version: None, at: self.present_version().await?, items: Vec::new() }
            }
            other => other?,
        };
        // Of an API only its jobs show whether it is installed: an object that they own may be another product's.
        if source.optional && self.kind == Kind::Job {
            let kind = &source.object_type.kind;
            let resource = Resource { api_version: source.object_type.api_version.clone(), kind: kind.clone() };
            let api = self.registry.get(&resource);
            let definition = match view.version {
                Some(_) => Definition::Installed,
                None if api.is_some_and(|api| api.is_external()) => Definition::ComesWithItsOperator,
                None if api.is_some_and(|api| api.is_optional()) => Definition::NotNeeded,
                None => Definition::Missing,
            };
            let served = self.status.installed(kind, &source.path, definition);
            self.metrics.serves(kind, served);
        }
        Ok(view)
    }

    /// Waits until the source, which a term goes without, can be listed.
    pub(crate) async fn until_listed(&self) {
        let mut wait = MIN_RETRY_INTERVAL;
        loop {
            tokio::time::sleep(wait).await;
            match self.list_if_served().await {
                Ok(_) => return self.status.source_error(&self.source.to_string(), None),
                Err(error) => self.status.source_error(&self.source.to_string(), Some(format!("list: {error}"))),
            }
            wait = (wait * 2).min(MAX_RETRY_INTERVAL);
        }
    }

    /// Lists the source at the newest version.
    async fn list(&self) -> Result<ListResult, Error> {
        let source = &self.source;
        let mut items = Vec::new();
        let mut next = String::new();
        let mut limit = LIST_PAGE_SIZE;
        loop {
            let params = ListParams {
                label_selector: Some(source.selector.clone()).filter(|selector| !selector.is_empty()),
                limit: (limit > 0).then_some(limit),
                continue_token: Some(next).filter(|next| !next.is_empty()),
                ..ListParams::default()
            };
            let request = kube::core::Request::new(&*source.path).list(&params).map_err(failed)?;
            let accept = if source.metadata_only { ACCEPT_METADATA_LIST } else { ACCEPT_JSON };
            let page = match self.page(request, accept, &source.object_type).await {
                // The remaining pages expired: lists again in one response.
                Err(Error::Expired) if limit > 0 => {
                    (next, limit) = (String::new(), 0);
                    items.clear();
                    continue;
                }
                page => page?,
            };
            page.unread.iter().for_each(|error| self.unread(error));
            let read = |item| ObservedObject::read_of(&self.registry, self.kind, Arc::new(item));
            items.extend(page.items.into_iter().filter_map(read));
            if page.next.is_empty() {
                let at = decode::number(&page.version);
                return Ok(ListResult { version: Some(page.version), at, items });
            }
            next = page.next;
        }
    }

    async fn page(
        &self,
        request: Request<Vec<u8>>,
        accept: &'static str,
        object_type: &ObjectType,
    ) -> Result<decode::Page, Error> {
        let answer = exchange::exchange(&self.client, prepared(request, accept), LIST_TIMEOUT).await?;
        self.metrics.watch_heard(&self.source.watch_name());
        if !answer.status.is_success() {
            return Err(rejected(answer.status.as_u16(), &answer.body));
        }
        decode::page(&answer.body, object_type).map_err(|error| Error::Failed(format!("unreadable list: {error}")))
    }

    /// Returns [`Error::ClusterRegressed`] if the cluster's version is below `version`.
    pub(super) async fn check_not_regressed(&self, version: &str) -> Result<(), Error> {
        let source = &self.source;
        let present = self.version_of(&source.path, &source.object_type).await?;
        if present < decode::number(version) { Err(Error::ClusterRegressed) } else { Ok(()) }
    }

    /// Returns the cluster's resourceVersion, read from the nodes: a missing resource has none.
    async fn present_version(&self) -> Result<ResourceVersion, Error> {
        let object_type =
            ObjectType { api_version: Text::from("v1"), kind: Text::from("Node"), fields: projection::VERSION };
        self.version_of(&collection("v1", "nodes", None), &object_type).await
    }

    /// Returns the resourceVersion of a collection.
    pub(super) async fn version_of(&self, path: &str, object_type: &ObjectType) -> Result<ResourceVersion, Error> {
        // Without a selector: with one the server would read every object until one matches.
        let params = ListParams { limit: Some(1), ..ListParams::default() };
        let request = kube::core::Request::new(path).list(&params).map_err(failed)?;
        Ok(decode::number(&self.page(request, ACCEPT_METADATA_LIST, object_type).await?.version))
    }
}
